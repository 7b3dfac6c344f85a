// Package standalone makes a tree of wrappers that runs outside a sandbox. It is that of package codeapi,
// with other helpers: they call a Skerry server by its API or, without a server, start `skerry mcp call`.
// Two examples run as they are.
//
//	helpers/callMCPTool.ts, call_mcp_tool.py    the call itself
//	helpers/connection.ts, connection.py        where it goes, without any secret
//	package.json                                tells node that these are modules
//	example.ts, example.py                      call a tool of each server that can be called so
package standalone

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
)

// Connection says how code outside of a sandbox reaches the tools. Server or Command is set. A key is
// not part of it: the helpers read SKERRY_API_KEY.
type Connection struct {
	// Server is the address of a Skerry server; "" when there is none.
	Server string `json:"server"`
	// Thread is the thread in whose name tools are called at Server.
	Thread string `json:"thread"`
	// Command is the program, with its first arguments, to which `TOOL --args - --json` is added when
	// there is no server.
	Command []string `json:"command"`
}

//go:embed static/callMCPTool.ts
var callTS []byte

//go:embed static/call_mcp_tool.py
var callPython []byte

// Generate returns the tree of a set: file contents by slash-separated path. The same set and connection
// make the same bytes. Errors are those of codeapi.Generate.
func Generate(set sandbox.ToolSet, c Connection) (map[string][]byte, error) {
	tree, err := codeapi.Generate(set)
	if err != nil {
		return nil, err
	}
	delete(tree, "skills/README.md") // outside there are none
	if c.Command == nil {
		c.Command = []string{}
	}
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the connection cannot be written")
	}
	tree["helpers/callMCPTool.ts"], tree["helpers/call_mcp_tool.py"] = callTS, callPython
	tree["helpers/connection.ts"] = fmt.Appendf(nil, "// Where calls go when neither MCP_RPC_ENDPOINT nor SKERRY_SERVER says so. No secret belongs here.\nexport const connection: { server: string; thread: string; command: string[] } = %s;\n", raw)
	// Its values are texts and lists of texts: JSON is Python here.
	tree["helpers/connection.py"] = fmt.Appendf(nil, "\"\"\"Where calls go when neither MCP_RPC_ENDPOINT nor SKERRY_SERVER says so. No secret belongs here.\"\"\"\nfrom __future__ import annotations\n\nTYPE_CHECKING = False\nif TYPE_CHECKING:\n    from typing import Any\n\nCONNECTION: dict[str, Any] = %s\n", raw)
	// Without it node would have to find out that these are modules, and say so.
	tree["package.json"] = []byte("{ \"private\": true, \"type\": \"module\" }\n")
	shown := samples(set.Tools)
	tree["example.ts"], tree["example.py"] = exampleTS(set.Tools, shown), examplePython(set.Tools, shown)
	return tree, nil
}

const maxSamples = 5

// gentle are first words of tools that only look, the most telling ones first; touchy are words of
// tools that an example had better not call.
var (
	gentle = []string{"list", "read", "get", "search", "describe", "show", "count"}
	touchy = []string{"env", "secret", "token", "key", "password", "credential", "trigger", "delete", "remove"}
)

// samples returns a tool of each of the first servers that can be called without arguments and whose name
// says that it only looks. A name is no promise, so the example tells what it calls.
func samples(tools []sandbox.Tool) []sandbox.Tool {
	best, rank := map[string]sandbox.Tool{}, map[string]int{}
	var servers []string
	for _, t := range tools {
		r := looks(t)
		if r < 0 {
			continue
		}
		if _, ok := best[t.Server]; !ok {
			servers = append(servers, t.Server)
		} else if rank[t.Server] <= r {
			continue
		}
		best[t.Server], rank[t.Server] = t, r
	}
	slices.Sort(servers)
	var list []sandbox.Tool
	for _, s := range servers[:min(len(servers), maxSamples)] {
		list = append(list, best[s])
	}
	return list
}

// looks ranks a tool as a sample; -1: it is none.
func looks(t sandbox.Tool) int {
	var schema struct {
		Required []string          `json:"required"`
		AnyOf    []json.RawMessage `json:"anyOf"`
	}
	if json.Unmarshal(t.Input, &schema) != nil || len(schema.Required)+len(schema.AnyOf) > 0 {
		return -1
	}
	name := strings.ToLower(t.Name)
	if slices.ContainsFunc(touchy, func(w string) bool { return strings.Contains(name, w) }) {
		return -1
	}
	return slices.IndexFunc(gentle, func(w string) bool { return strings.HasPrefix(name, w) })
}

func printed(t sandbox.Tool) string { return string(quoted(t.Printed)) }

// quoted is a string that TypeScript and Python both read as s.
func quoted(s string) []byte {
	raw, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // no string fails
	}
	return raw
}

// counts are the lines {"server", number of tools} of the table that both examples print.
func counts(tools []sandbox.Tool, b *bytes.Buffer, row string) {
	n := map[string]int{}
	var servers []string
	for _, t := range tools {
		if n[t.Server]++; n[t.Server] == 1 {
			servers = append(servers, t.Server)
		}
	}
	slices.Sort(servers)
	for _, s := range servers {
		fmt.Fprintf(b, row, quoted(s), n[s])
	}
}

func exampleTS(tools, shown []sandbox.Tool) []byte {
	var b bytes.Buffer
	b.WriteString(`// Calls tools of MCP servers from outside of a sandbox. It runs as it is:
//
//	bun example.ts        node example.ts (22.18 or newer)        deno run -A example.ts
//
// Each server has typed functions too: import { … } from "./servers/<server>/index.ts".
import { callMCPTool, MCPToolError } from "./helpers/callMCPTool.ts";

const servers: [string, number][] = [
`)
	counts(tools, &b, "  [%s, %d],\n")
	b.WriteString("];\n\n// Tools that need no arguments and, by their names, only look.\nconst samples: string[] = [\n")
	for _, t := range shown {
		fmt.Fprintf(&b, "  %s,\n", printed(t))
	}
	b.WriteString(`];

async function main(): Promise<void> {
  for (const [name, tools] of servers) console.log(` + "`${name}: ${tools} tools`" + `);
  let failed = 0;
  for (const tool of samples) {
    try {
      const result = await callMCPTool(tool, {});
      const text = typeof result === "string" ? result : JSON.stringify(result);
      console.log(` + "`${tool}: ${JSON.stringify(text.slice(0, 200))}`" + `);
    } catch (err) {
      if (!(err instanceof MCPToolError)) throw err;
      failed++;
      console.log(` + "`${tool} failed (${err.code}): ${JSON.stringify(err.message)}`" + `);
    }
  }
  console.log(` + "`${samples.length} called, ${failed} failed`" + `);
}

void main();
`)
	return b.Bytes()
}

func examplePython(tools, shown []sandbox.Tool) []byte {
	var b bytes.Buffer
	b.WriteString(`"""Calls tools of MCP servers from outside of a sandbox. It runs as it is: python3 example.py

Each server has typed functions too: from servers.<server> import …
"""
from __future__ import annotations

import json

from helpers.call_mcp_tool import MCPToolError, call_mcp_tool

SERVERS: list[tuple[str, int]] = [
`)
	counts(tools, &b, "    (%s, %d),\n")
	b.WriteString("]\n\n# Tools that need no arguments and, by their names, only look.\nSAMPLES: list[str] = [\n")
	for _, t := range shown {
		fmt.Fprintf(&b, "    %s,\n", printed(t))
	}
	b.WriteString(`]


def main() -> None:
    for name, tools in SERVERS:
        print(f"{name}: {tools} tools")
    failed = 0
    for tool in SAMPLES:
        try:
            result = call_mcp_tool(tool, {})
        except MCPToolError as err:
            failed += 1
            print(f"{tool} failed ({err.code}): {json.dumps(str(err))}")
            continue
        text = result if isinstance(result, str) else json.dumps(result)
        print(f"{tool}: {json.dumps(text[:200])}")
    print(f"{len(SAMPLES)} called, {failed} failed")


if __name__ == "__main__":
    main()
`)
	return b.Bytes()
}
