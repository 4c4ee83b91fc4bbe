// Ask a gateway with Go's standard library alone:
//
//	go run client.go URL MODEL chat|stream|tools QUESTION
//
// URL ends in /v1; the key is OPENAI_API_KEY, if the gateway wants one.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

type message struct {
	Role       string     `json:"role"`
	Content    *string    `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

func (m message) text() string { // null beside tool calls, or where an answer ended within its reasoning
	if m.Content == nil {
		return ""
	}
	return *m.Content
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"` // JSON in a string
	} `json:"function"`
}

type answer struct { // a whole one, a chunk of a stream, or an error
	Choices []struct {
		Message message `json:"message"`
		Delta   message `json:"delta"`
	} `json:"choices"`
	Error *apiError `json:"error"`
}

type apiError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"param"`
	Code    string `json:"code"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%s (type %s, param %s, code %s)", e.Message, e.Type, e.Param, e.Code)
}

const tools = `[{"type": "function", "function": {
	"name": "get_weather", "description": "Get the weather in a city.",
	"parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]`

type client struct{ url, key, model string }

func (c client) post(body map[string]any) (*http.Response, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest("POST", c.url+"/chat/completions", bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+c.key)
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode == http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	var refused answer
	if json.Unmarshal(text, &refused) != nil || refused.Error == nil { // something between answered
		return nil, fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil, fmt.Errorf("%s: %w", response.Status, refused.Error)
}

func (c client) chat(messages []message, more map[string]any) (message, error) {
	body := map[string]any{"model": c.model, "messages": messages, "temperature": 0}
	for name, value := range more {
		body[name] = value
	}
	response, err := c.post(body)
	if err != nil {
		return message{}, err
	}
	defer response.Body.Close()
	var whole answer
	if err := json.NewDecoder(response.Body).Decode(&whole); err != nil {
		return message{}, err
	}
	return whole.Choices[0].Message, nil
}

func (c client) stream(messages []message, piece func(string)) error {
	response, err := c.post(map[string]any{"model": c.model, "messages": messages, "temperature": 0, "stream": true})
	if err != nil {
		return err
	}
	defer response.Body.Close()             // leaving early cancels the request in the engine
	lines := bufio.NewReader(response.Body) // a Scanner would reject lines over 64 KiB
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return io.ErrUnexpectedEOF // a whole stream ends with [DONE]
		} else if err != nil {
			return err
		}
		if !strings.HasPrefix(line, "data: ") {
			continue // an empty line ends an event; one that begins with a colon is a comment
		}
		data := strings.TrimSpace(strings.TrimPrefix(line, "data: "))
		if data == "[DONE]" {
			return nil
		}
		var chunk answer
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return err
		}
		if chunk.Error != nil {
			return chunk.Error
		}
		for _, choice := range chunk.Choices {
			piece(choice.Delta.text())
		}
	}
}

func (c client) withTools(messages []message, weather func(city string) string) (string, error) {
	for {
		said, err := c.chat(messages, map[string]any{"tools": json.RawMessage(tools)})
		if err != nil {
			return "", err
		}
		if len(said.ToolCalls) == 0 {
			return said.text(), nil
		}
		messages = append(messages, said)
		for _, call := range said.ToolCalls {
			var arguments struct{ City string }
			if err := json.Unmarshal([]byte(call.Function.Arguments), &arguments); err != nil {
				return "", err
			}
			result := weather(arguments.City)
			messages = append(messages, message{Role: "tool", ToolCallID: call.ID, Content: &result})
		}
	}
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "go run client.go URL MODEL chat|stream|tools QUESTION")
		os.Exit(2)
	}
	c := client{url: os.Args[1], key: os.Getenv("OPENAI_API_KEY"), model: os.Args[2]}
	if err := c.run(os.Args[3], []message{{Role: "user", Content: &os.Args[4]}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (c client) run(how string, messages []message) error {
	switch how {
	case "chat":
		said, err := c.chat(messages, nil)
		if err != nil {
			return err
		}
		fmt.Println(said.text())
	case "stream":
		if err := c.stream(messages, func(piece string) { fmt.Print(piece) }); err != nil {
			return err
		}
		fmt.Println()
	case "tools":
		text, err := c.withTools(messages, func(city string) string {
			fmt.Printf("get_weather(%s)\n", city)
			return "18 degrees and rain"
		})
		if err != nil {
			return err
		}
		fmt.Println(text)
	default:
		return fmt.Errorf("chat, stream or tools, not %s", how)
	}
	return nil
}
