package rest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestClients: each operation of the document is a method of each client in sdk/, or sdk/operations.json says why it is not. A
// method that is named there exists, in the client's own text.
func TestClients(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal(send(handler(t, newWorld(t)), "GET", "/openapi.json", "").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	var table struct {
		Clients map[string]map[string]string `json:"clients"`
		LeftOut map[string]map[string]string `json:"left_out"`
	}
	text, err := os.ReadFile("../../../sdk/operations.json")
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]map[string]bool{
		"go":         goMethods(t, "../../../sdk/go/*.go"),
		"python":     methodsOf(t, "../../../sdk/python/src/skerry/_async/*.py", `^class (\w+)`, `^    (?:async )?def (\w+)\(`),
		"typescript": methodsOf(t, "../../../sdk/typescript/src/*.ts", `^export class (\w+)`, `^  (?:async )?\*?(\w+)(?:<\w+>)?\(`),
	}
	there := map[string]bool{}
	for path, ops := range doc.Paths {
		for verb, op := range ops {
			there[op.OperationID] = true
			for client := range methods {
				method, why := table.Clients[op.OperationID][client], table.LeftOut[op.OperationID][client]
				switch {
				case method == "" && why == "":
					t.Errorf("the %s client lacks %s (%s %s): give it a method, or say in sdk/operations.json why not", client, op.OperationID, strings.ToUpper(verb), path)
				case method != "" && why != "":
					t.Errorf("%s: the %s client has it, and leaves it out", op.OperationID, client)
				case method != "" && !methods[client][method]:
					t.Errorf("%s: the %s client has no %s", op.OperationID, client, method)
				}
			}
		}
	}
	for _, part := range []map[string]map[string]string{table.Clients, table.LeftOut} {
		for op := range part {
			if !there[op] {
				t.Errorf("sdk/operations.json has %s, which the server has not", op)
			}
		}
	}
}

func sources(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

func goMethods(t *testing.T, pattern string) map[string]bool {
	found := map[string]bool{}
	method := regexp.MustCompile(`(?m)^func \(\w+ \*?(\w+)\) ([A-Z]\w*)\(`)
	for _, text := range sources(t, pattern) {
		for _, m := range method.FindAllStringSubmatch(text, -1) {
			found[m[1]+"."+m[2]] = true
		}
	}
	return found
}

// methodsOf are the methods of classes, as Class.method.
func methodsOf(t *testing.T, pattern, class, method string) map[string]bool {
	found := map[string]bool{}
	isClass, isMethod := regexp.MustCompile(class), regexp.MustCompile(method)
	for _, text := range sources(t, pattern) {
		now := ""
		for line := range strings.Lines(text) {
			if m := isClass.FindStringSubmatch(line); m != nil {
				now = m[1]
			} else if m := isMethod.FindStringSubmatch(line); m != nil {
				found[now+"."+m[1]] = true
			}
		}
	}
	return found
}
