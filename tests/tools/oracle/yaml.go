package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
	kyaml "sigs.k8s.io/yaml"
)

// yamlQuestion either asks what Text is ("read"), or how libraries spell JSON ("write").
type yamlQuestion struct {
	Op   string `json:"op"`
	Text string `json:"text"`
	JSON string `json:"json"`
}

// yamlAnswer is one library's: Value is JSON text. Numbers in it have a dot or an exponent exactly if the library read a
// float, except from sigs.k8s.io/yaml, whose answer is JSON already.
type yamlAnswer struct {
	Name  string `json:"name"`
	Text  string `json:"text,omitempty"`
	Value string `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
}

type yamlReader func(text string) (string, error)

func answerYAML(line []byte) (any, error) {
	var question yamlQuestion
	if err := json.Unmarshal(line, &question); err != nil {
		return nil, err
	}
	switch question.Op {
	case "read":
		return []yamlAnswer{
			read("yaml.v3", question.Text, readV3),
			read("sigs.k8s.io/yaml", question.Text, readSigs),
		}, nil
	case "write":
		return write(question.JSON)
	}
	return nil, fmt.Errorf("unknown op %q", question.Op)
}

func read(name, text string, reader yamlReader) (answer yamlAnswer) {
	answer.Name = name
	defer func() {
		if problem := recover(); problem != nil {
			answer.Error = fmt.Sprint("panic: ", problem)
		}
	}()
	value, err := reader(text)
	if err != nil {
		answer.Error = err.Error()
		return answer
	}
	answer.Value = value
	return answer
}

func readV3(text string) (string, error) {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return "", err
	}
	var out strings.Builder
	if err := canonical(&out, value); err != nil {
		return "", err
	}
	return out.String(), nil
}

func readSigs(text string) (string, error) {
	value, err := kyaml.YAMLToJSON([]byte(text))
	return string(value), err
}

// write answers with each library's spelling, and with what the same library reads from it.
func write(text string) (any, error) {
	value, err := decodeJSON(text)
	if err != nil {
		return nil, err
	}
	return []yamlAnswer{
		spell("yaml.v3", readV3, func() ([]byte, error) { return yaml.Marshal(value) }),
		// This one reads JSON as if it were YAML, and fails where YAML is narrower: a key of 1024 characters.
		spell("sigs.k8s.io/yaml", readSigs, func() ([]byte, error) { return kyaml.JSONToYAML([]byte(text)) }),
	}, nil
}

func spell(name string, reader yamlReader, writer func() ([]byte, error)) (answer yamlAnswer) {
	answer.Name = name
	defer func() {
		if problem := recover(); problem != nil {
			answer.Error = fmt.Sprint("panic: ", problem)
		}
	}()
	text, err := writer()
	if err != nil {
		answer.Error = err.Error()
		return answer
	}
	answer = read(name, string(text), reader)
	answer.Text = string(text)
	return answer
}

// decodeJSON keeps integers of 64 bits exact.
func decodeJSON(text string) (any, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return exact(value)
}

func exact(value any) (any, error) {
	var err error
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			if value[key], err = exact(item); err != nil {
				return nil, err
			}
		}
	case []any:
		for index, item := range value {
			if value[index], err = exact(item); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if integer, err := strconv.Atoi(value.String()); err == nil {
			return integer, nil
		}
		if integer, err := strconv.ParseUint(value.String(), 10, 64); err == nil {
			return integer, nil
		}
		return value.Float64()
	}
	return value, nil
}

func canonical(out *strings.Builder, value any) error {
	switch value := value.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(value))
	case string:
		return text(out, value)
	case int:
		out.WriteString(strconv.Itoa(value))
	case int64:
		out.WriteString(strconv.FormatInt(value, 10))
	case uint64:
		out.WriteString(strconv.FormatUint(value, 10))
	case float64:
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return fmt.Errorf("a float that JSON lacks")
		}
		out.WriteString(strconv.FormatFloat(value, 'e', -1, 64))
	case []any:
		return list(out, value)
	case map[string]any:
		return object(out, value)
	default:
		return fmt.Errorf("a %T, which JSON lacks", value)
	}
	return nil
}

func text(out *strings.Builder, value string) error {
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	out.Write(bytes.TrimSuffix(quoted.Bytes(), []byte("\n")))
	return nil
}

func list(out *strings.Builder, items []any) error {
	out.WriteByte('[')
	for index, item := range items {
		if index > 0 {
			out.WriteByte(',')
		}
		if err := canonical(out, item); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

func object(out *strings.Builder, entries map[string]any) error {
	keys := make([]string, 0, len(entries))
	for key := range entries {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	out.WriteByte('{')
	for index, key := range keys {
		if index > 0 {
			out.WriteByte(',')
		}
		if err := text(out, key); err != nil {
			return err
		}
		out.WriteByte(':')
		if err := canonical(out, entries[key]); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}
