// Says what Go's libraries make of a text. In: the name of a question as the only argument, then one JSON object per line
// on stdin. Out: one line of JSON per question, in order. It ends when stdin does.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// A handler answers one line. Its error means that the question itself was wrong, and ends the program.
var handlers = map[string]func(line []byte) (any, error){
	"yaml":     answerYAML,
	"template": answerTemplate,
}

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 || handlers[args[0]] == nil {
		return fmt.Errorf("usage: oracle yaml|template")
	}
	answer := handlers[args[0]]
	lines := bufio.NewReaderSize(in, 1<<20)
	replies := bufio.NewWriter(out)
	encoder := json.NewEncoder(replies)
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		reply, err := answer(line)
		if err != nil {
			return err
		}
		if err := encoder.Encode(reply); err != nil {
			return err
		}
		if err := replies.Flush(); err != nil {
			return err
		}
	}
}
