// Ask a gateway with java.net.http; Jackson reads and writes JSON, for which Java has nothing of its own:
//
//     java -cp JACKSON Client.java URL MODEL chat|stream|tools QUESTION
//
// JACKSON names its three archives, such as those of Debian's libjackson2-databind-java: databind, core and annotations.
// URL ends in /v1; the key is OPENAI_API_KEY, if the gateway wants one.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;

public final class Client {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOOLS = """
        [{"type": "function", "function": {
            "name": "get_weather", "description": "Get the weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
        """;

    private final HttpClient http = HttpClient.newHttpClient();
    private final String url;
    private final String key;
    private final String model;

    Client(String url, String key, String model) {
        this.url = url;
        this.key = key;
        this.model = model;
    }

    /** What the gateway, or something before it, rejected. */
    static final class ApiException extends IOException {
        ApiException(String where, JsonNode error) {
            super("%s: %s (type %s, param %s, code %s)".formatted(where, error.path("message").asText(),
                error.path("type").asText(), error.path("param").asText(), error.path("code").asText()));
        }

        ApiException(String message) {
            super(message);
        }
    }

    private InputStream post(ObjectNode body) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(url + "/chat/completions"))
            .header("Content-Type", "application/json")
            .header("Authorization", "Bearer " + key)
            .POST(BodyPublishers.ofByteArray(JSON.writeValueAsBytes(body)))
            .build();
        var response = http.send(request, BodyHandlers.ofInputStream());
        if (response.statusCode() == 200) {
            return response.body();
        }
        String text = new String(response.body().readAllBytes(), StandardCharsets.UTF_8);
        String status = Integer.toString(response.statusCode());
        if (!text.startsWith("{")) { // something between answered
            throw new ApiException(status + ": " + text);
        }
        throw new ApiException(status, JSON.readTree(text).path("error"));
    }

    private ObjectNode body(ArrayNode messages) {
        return JSON.createObjectNode().put("model", model).put("temperature", 0).set("messages", messages);
    }

    JsonNode chat(ObjectNode body) throws IOException, InterruptedException {
        try (InputStream answer = post(body)) {
            return JSON.readTree(answer).at("/choices/0/message");
        }
    }

    void stream(ArrayNode messages, Consumer<String> piece) throws IOException, InterruptedException {
        // Leaving the block early cancels the request in the engine.
        try (var lines = new BufferedReader(
                new InputStreamReader(post(body(messages).put("stream", true)), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                if (!line.startsWith("data: ")) {
                    continue; // an empty line ends an event; one that begins with a colon is a comment
                }
                String data = line.substring("data: ".length());
                if (data.equals("[DONE]")) {
                    return;
                }
                JsonNode chunk = JSON.readTree(data);
                if (chunk.has("error")) {
                    throw new ApiException("stream", chunk.get("error"));
                }
                for (JsonNode choice : chunk.path("choices")) {
                    piece.accept(choice.path("delta").path("content").asText(""));
                }
            }
            throw new EOFException("the stream ended without [DONE]");
        }
    }

    String withTools(ArrayNode messages, UnaryOperator<String> weather) throws IOException, InterruptedException {
        while (true) {
            JsonNode said = chat(body(messages).set("tools", JSON.readTree(TOOLS)));
            if (said.path("tool_calls").isEmpty()) {
                return said.path("content").asText("");
            }
            messages.add(said);
            for (JsonNode call : said.path("tool_calls")) {
                JsonNode arguments = JSON.readTree(call.at("/function/arguments").asText()); // JSON in a string
                messages.addObject().put("role", "tool").put("tool_call_id", call.path("id").asText())
                    .put("content", weather.apply(arguments.path("city").asText()));
            }
        }
    }

    public static void main(String[] args) throws InterruptedException {
        if (args.length != 4) {
            System.err.println("Client.java URL MODEL chat|stream|tools QUESTION");
            System.exit(2);
        }
        var client = new Client(args[0], Objects.requireNonNullElse(System.getenv("OPENAI_API_KEY"), ""), args[1]);
        ArrayNode messages = JSON.createArrayNode();
        messages.addObject().put("role", "user").put("content", args[3]);
        try {
            switch (args[2]) {
                case "chat" -> System.out.println(client.chat(client.body(messages)).path("content").asText(""));
                case "stream" -> {
                    client.stream(messages, piece -> {
                        System.out.print(piece);
                        System.out.flush();
                    });
                    System.out.println();
                }
                case "tools" -> System.out.println(client.withTools(messages, city -> {
                    System.out.printf("get_weather(%s)%n", city);
                    return "18 degrees and rain";
                }));
                default -> System.exit(2);
            }
        } catch (IOException error) {
            System.err.println(error);
            System.exit(1);
        }
    }
}
