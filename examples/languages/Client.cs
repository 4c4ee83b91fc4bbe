// Ask a gateway with HttpClient and Json.NET (Newtonsoft.Json), by .NET or Mono:
//
//     mcs Client.cs -r:System.Net.Http.dll -r:Newtonsoft.Json.dll && mono Client.exe URL MODEL chat|stream|tools QUESTION
//
// URL ends in /v1; the key is OPENAI_API_KEY, if the gateway wants one.

using System;
using System.IO;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Newtonsoft.Json.Linq;

/// <summary>What the gateway, or something before it, rejected.</summary>
public sealed class ApiException : Exception
{
    public ApiException(string message) : base(message) { }

    public ApiException(string where, JToken error)
        : base($"{where}: {error["message"]} (type {error["type"]}, param {error["param"]}, code {error["code"]})") { }
}

public sealed class Client
{
    private const string Tools = @"[{'type': 'function', 'function': {
        'name': 'get_weather', 'description': 'Get the weather in a city.',
        'parameters': {'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']}}}]";

    private readonly HttpClient http = new HttpClient { Timeout = Timeout.InfiniteTimeSpan }; // else 100 s
    private readonly string url, model;

    public Client(string url, string key, string model)
    {
        this.url = url;
        this.model = model;
        http.DefaultRequestHeaders.Authorization = new AuthenticationHeaderValue("Bearer", key);
    }

    private async Task<HttpResponseMessage> Post(JObject body)
    {
        var request = new HttpRequestMessage(HttpMethod.Post, url + "/chat/completions")
        {
            Content = new StringContent(body.ToString(), Encoding.UTF8, "application/json"),
        };
        // Without ResponseHeadersRead a stream would come in one piece, at its end.
        var response = await http.SendAsync(request, HttpCompletionOption.ResponseHeadersRead);
        if (response.IsSuccessStatusCode) return response;
        using (response)
        {
            var text = await response.Content.ReadAsStringAsync();
            var status = ((int)response.StatusCode).ToString();
            if (!text.StartsWith("{")) throw new ApiException($"{status}: {text}"); // something between answered
            throw new ApiException(status, JObject.Parse(text)["error"]);
        }
    }

    private JObject Body(JArray messages) =>
        new JObject { ["model"] = model, ["messages"] = messages, ["temperature"] = 0 };

    public async Task<JObject> Chat(JArray messages, JArray tools = null)
    {
        var body = Body(messages);
        if (tools != null) body["tools"] = tools;
        using (var response = await Post(body))
            return (JObject)JObject.Parse(await response.Content.ReadAsStringAsync())["choices"][0]["message"];
    }

    public async Task Stream(JArray messages, Action<string> piece)
    {
        var body = Body(messages);
        body["stream"] = true;
        using (var response = await Post(body)) // leaving early cancels the request in the engine
        using (var lines = new StreamReader(await response.Content.ReadAsStreamAsync(), Encoding.UTF8))
        {
            string line;
            while ((line = await lines.ReadLineAsync()) != null)
            {
                // An empty line ends an event; one that begins with a colon is a comment.
                if (!line.StartsWith("data: ")) continue;
                var data = line.Substring("data: ".Length);
                if (data == "[DONE]") return;
                var chunk = JObject.Parse(data);
                if (chunk["error"] != null) throw new ApiException("stream", chunk["error"]);
                foreach (var choice in chunk["choices"]) piece((string)choice["delta"]["content"] ?? "");
            }
            throw new EndOfStreamException("the stream ended without [DONE]");
        }
    }

    public async Task<string> WithTools(JArray messages, Func<string, string> weather)
    {
        while (true)
        {
            var said = await Chat(messages, JArray.Parse(Tools));
            if (!(said["tool_calls"] is JArray calls)) return (string)said["content"];
            messages.Add(said);
            foreach (var call in calls)
            {
                var arguments = JObject.Parse((string)call["function"]["arguments"]); // JSON in a string
                messages.Add(new JObject
                {
                    ["role"] = "tool", ["tool_call_id"] = call["id"], ["content"] = weather((string)arguments["city"]),
                });
            }
        }
    }

    public static int Main(string[] args) => Run(args).GetAwaiter().GetResult();

    private static async Task<int> Run(string[] args)
    {
        if (args.Length != 4)
        {
            Console.Error.WriteLine("Client URL MODEL chat|stream|tools QUESTION");
            return 2;
        }
        var client = new Client(args[0], Environment.GetEnvironmentVariable("OPENAI_API_KEY"), args[1]);
        var messages = new JArray { new JObject { ["role"] = "user", ["content"] = args[3] } };
        try
        {
            switch (args[2])
            {
                case "chat":
                    Console.WriteLine((string)(await client.Chat(messages))["content"]);
                    return 0;
                case "stream":
                    await client.Stream(messages, Console.Write);
                    Console.WriteLine();
                    return 0;
                case "tools":
                    Console.WriteLine(await client.WithTools(messages, city =>
                    {
                        Console.WriteLine($"get_weather({city})");
                        return "18 degrees and rain";
                    }));
                    return 0;
                default:
                    return 2;
            }
        }
        catch (Exception error) when (error is ApiException || error is HttpRequestException || error is IOException)
        {
            Console.Error.WriteLine(error.Message);
            return 1;
        }
    }
}
