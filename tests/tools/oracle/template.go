package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"text/template"
)

// templateQuestion: Kind says which type Data becomes: "event", "group", "reconcile", or "any" for maps and lists.
type templateQuestion struct {
	Kind     string          `json:"kind"`
	Template string          `json:"template"`
	Data     json.RawMessage `json:"data"`
}

// templateAnswer: Stage is "parse" or "execute" if Error says something, else "done".
type templateAnswer struct {
	Stage  string `json:"stage"`
	Output string `json:"output"`
	Error  string `json:"error,omitempty"`
}

// The three shapes of data that commit messages are made of.
type eventData struct {
	Operation, Group, Version, Resource, Namespace, Name, APIVersion, Username, GitTarget string
}

type resourceRef struct {
	Group, Version, Resource, Namespace, Name string
}

type groupData struct {
	Author, GitTarget string
	Count             int
	Operations        map[string]int
	Resources         []resourceRef
}

type reconcileData struct {
	Count                                                                int
	GitTarget, Group, Version, Resource, APIVersion, Revision, Namespace string
}

func answerTemplate(line []byte) (any, error) {
	var question templateQuestion
	if err := json.Unmarshal(line, &question); err != nil {
		return nil, err
	}
	data, err := templateData(question)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New("message").Option("missingkey=error").Parse(question.Template)
	if err != nil {
		return templateAnswer{Stage: "parse", Error: err.Error()}, nil
	}
	return execute(parsed, data), nil
}

func execute(parsed *template.Template, data any) (answer templateAnswer) {
	answer.Stage = "execute"
	defer func() {
		if problem := recover(); problem != nil {
			answer.Error = fmt.Sprint("panic: ", problem)
		}
	}()
	var out bytes.Buffer
	if err := parsed.Execute(&out, data); err != nil {
		answer.Error = err.Error()
		return answer
	}
	return templateAnswer{Stage: "done", Output: out.String()}
}

func templateData(question templateQuestion) (any, error) {
	switch question.Kind {
	case "event":
		var data eventData
		err := decodeInto(question.Data, &data)
		return data, err
	case "group":
		var data groupData
		err := decodeInto(question.Data, &data)
		return data, err
	case "reconcile":
		var data reconcileData
		err := decodeInto(question.Data, &data)
		return data, err
	case "any":
		return decodeJSON(string(question.Data))
	}
	return nil, fmt.Errorf("unknown kind %q", question.Kind)
}

func decodeInto(text json.RawMessage, data any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(data)
}
