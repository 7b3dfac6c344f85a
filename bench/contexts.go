package main

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// contextRows compare a run in a context, whose interpreter lives on, with a fresh run of the same text.
func (b *bench) contextRows() ([]row, error) {
	var rows []row
	for _, c := range []struct{ language, text string }{{"python", "print(1)"}, {"typescript", "const x: number = 1; console.log(x)"}} {
		id, err := b.newContext(c.language)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{
			"in a context, " + c.language, func() error { return b.inContext(id, c.text) },
			func() error { _, err := b.code(c.language, c.text); return err }, "execute_code " + c.language, 1,
		})
	}
	return rows, nil
}

func (b *bench) newContext(language string) (id string, err error) {
	raw, err := b.post(http.MethodPost, "/api/threads/bench/contexts", map[string]any{"language": language})
	if err != nil {
		return "", err
	}
	var made struct {
		ID string `json:"context_id"`
	}
	return made.ID, json.Unmarshal(raw, &made)
}

func (b *bench) inContext(id, text string) error {
	raw, err := b.post(http.MethodPost, "/api/threads/bench/execute_code", map[string]any{"code": text, "context_id": id})
	if err != nil {
		return err
	}
	var r struct{ Stdout string }
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	if r.Stdout != "1\n" {
		return fmt.Errorf("a run in a context: %s", raw)
	}
	return nil
}
