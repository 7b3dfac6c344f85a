package format

import (
	"strings"
	"testing"
)

func TestInterpreter(t *testing.T) {
	for head, want := range map[string]string{
		"#!/bin/bash\n":                           "/bin/bash",
		"#!/usr/bin/env python3\nx":               "python3",
		"#! /usr/bin/env -S deno run --allow-all": "deno run --allow-all",
		"#!/usr/bin/env -S A=1 node -a\r\n":       "env A=1 node -a",
		"#!/usr/bin/python3 -I\n":                 "/usr/bin/python3 -I",
		"#!\n":                                    "sh",
		"#!/usr/bin/env\n":                        "sh",
		"echo\n":                                  "sh",
	} {
		argv, err := Interpreter(head, "x.sh")
		if err != nil || strings.Join(argv, " ") != want {
			t.Errorf("%q: got %q, %v, want %q", head, argv, err, want)
		}
	}
	for _, name := range []string{"a.js", "a.MJS", "a.ts"} { // which runtime it is, the template knows
		if argv, err := Interpreter("", name); err != nil || strings.Join(argv, " ") != JavaScript {
			t.Errorf("%s: got %q, %v", name, argv, err)
		}
	}
}

// TestWasmScript: a module needs no program of the image, and its first bytes are no #! line.
func TestWasmScript(t *testing.T) {
	argv, err := Interpreter("\x00asm\x01\x00\x00\x00", "scripts/Tool.WASM")
	if err != nil || strings.Join(argv, " ") != "/opt/skerry/skerry-sandboxd wasm" {
		t.Errorf("%q, %v", argv, err)
	}
}

func FuzzInterpreter(f *testing.F) {
	f.Add("#!/usr/bin/env -S A=1 node", "x.ts")
	f.Fuzz(func(t *testing.T, head, name string) {
		argv, err := Interpreter(head, name)
		if (err == nil) == (len(argv) == 0) {
			t.Errorf("%q %q: %q, %v", head, name, argv, err)
		}
	})
}
