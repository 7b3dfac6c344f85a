package codeapi

import (
	"encoding/json"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// hardSchemas are shapes that real servers use, and some that only a careless or hostile one would.
var hardSchemas = []string{
	`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"array","items":{"type":"object","properties":{"c":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["c"]}}}}},"required":["a"]}`,
	`{"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"},"v":{"type":["string","integer","null"]}}}},"$ref":"#/$defs/n"}`,
	`{"type":"object","properties":{"self":{"$ref":"#"}}}`,
	`{"$ref":"#"}`,
	`{"anyOf":[{"$ref":"#"},{"type":"string"}]}`,
	`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"type":"object","properties":{"x":{"$ref":"#/$defs/a"}}}`,
	`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"},{"type":"object","properties":{"k":{"$ref":"#/$defs/a"}}}]},"b":{"anyOf":[{"$ref":"#/$defs/c"},{"type":"number"}]},"c":{"oneOf":[{"$ref":"#/$defs/a"},{"type":"array","items":{"$ref":"#/$defs/a"}}]}},"$ref":"#/$defs/a"}`,
	`{"$defs":{"map":{"type":"object","additionalProperties":{"$ref":"#/$defs/map"}},"t":{"type":"array","prefixItems":[{"$ref":"#/$defs/t"},{"type":"string"}]}},"type":"object","properties":{"m":{"$ref":"#/$defs/map"},"t":{"$ref":"#/$defs/t"}}}`,
	`{"type":"object","properties":{"a":{"type":"string"}},"required":["a","b"],"additionalProperties":{"type":"number"}}`,
	`{"type":"object","patternProperties":{"^x-":{"type":"string"}},"additionalProperties":false}`,
	`{"type":"object","additionalProperties":false}`,
	`{"type":"object","properties":{"a":{"const":"x*/"},"b":{"const":null},"c":{"const":{"a":1}},"d":{"enum":[]},"e":{"enum":[1,-2.5,1e400,true,false,null,"\u2028\"\\"]}}}`,
	`{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}],"properties":{"a":{"type":"string"},"b":{"type":"string"}}}`,
	`{"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"number"}},"required":["kind"]},{"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"]}]}`,
	`{"type":"array","items":[{"type":"string"},{"type":["number","null"]}],"minItems":1,"additionalItems":false}`,
	`{"type":"array","prefixItems":[{"type":"string"},{"anyOf":[{"type":"string"},{"type":"number"}]}],"items":{"type":"boolean"}}`,
	`{"type":"array","prefixItems":[{"type":"string"}],"maxItems":1,"minItems":1}`,
	`{"type":"array"}`, `{"items":{"enum":["a",1]}}`, `{"type":"string"}`, `{"type":"null"}`, `{"type":"magic"}`, `{"type":7}`, `{"type":[]}`, `{"type":["object","array"]}`,
	`true`, `false`, `null`, `[]`, `7`, `"x"`, ``, `{`, `{"type":"object","properties":[]}`, `{"type":"object","properties":{"a":7,"b":false,"c":true,"d":null}}`,
	`{"type":"object","const":5}`, `{"type":"object","nullable":true,"properties":{"a":{"type":"string","nullable":true}}}`,
	`{"type":"object","properties":{"":{},"a-b":{},"1":{},"__proto__":{},"constructor":{},"class":{},"self":{},"_input":{},"kwargs":{},"kwargs_":{},"input":{},"dict":{},"\"]; x":{},"*/":{"description":"*/ x \"\"\" \\"},"日本":{}},"required":["class","\"]; x",5]}`,
	`{"type":"object","properties":{"a":{"$ref":"https://example.org/x.json"},"b":{"$ref":"#/nowhere"},"c":{"$ref":"#/properties/d/items"},"d":{"type":"array","items":{"type":"string"}},"e":{"$ref":"#/properties/a~1b/%7Btwo%7D"},"f":{"$ref":"#anchor"},"g":{"$ref":5}}}`,
	`{"type":"object","properties":{"x":{"allOf":[{"$ref":"#/definitions/p"},{"properties":{"y":{"type":"number"}},"required":["y"]}],"description":"both"}},"definitions":{"p":{"type":"object","description":"a p */","properties":{"q":{"type":"string"}}}}}`,
	`{"type":"object","properties":{"x":{"not":{"type":"string"}},"y":{"if":{"type":"string"},"then":{"minLength":3}},"z":{"type":"string","format":"date-time","pattern":"\\*/"}}}`,
	`{"type":"object","properties":{"any":{"anyOf":[{"type":"string"},{}]},"never":{"anyOf":[false]},"all":{"allOf":[{"type":"string"},false]},"list":{"type":"array","items":false}}}`,
	`{"type":"object","properties":{"d":{"default":{"a":1}},"e":{"type":"string","default":"*/ x"},"f":{"type":"integer","default":3,"description":"how many"}}}`,
	`{"$defs":{"A":{"type":"string"},"a":{"type":"number"},"A!":{"type":"boolean"}},"type":"object","properties":{"x":{"$ref":"#/$defs/A"},"y":{"$ref":"#/$defs/a"},"z":{"$ref":"#/$defs/A!"}}}`,
	`{"type":"object","properties":{"str":{"type":"string"},"b":{"type":"string"},"int":{"type":"integer"},"List":{"type":"array","items":{"type":"object","properties":{"Any":{},"bool":{"type":"boolean"},"c":{"type":"boolean"},"Dict":{"type":"object"},"Required":{"enum":["List"]}},"required":["c"]}},"Literal":{"enum":["x"]}}}`,
	`{"type":"object","properties":{"x":{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]},"y":{"allOf":[{"type":"string"}]},"z":{"type":"integer","allOf":[{"minimum":3}]}},"$defs":{"a":{"type":"object","properties":{"k":{"type":"string"}},"required":["k"]},"b":{"type":"object","properties":{"n":{"$ref":"#/$defs/a"},"me":{"allOf":[{"$ref":"#/$defs/b"}]}}}}}`,
	`{"type":"object","properties":{"when":{"type":"string","default":null},"list":{"type":"array","default":["a",1]},"map":{"type":"object","default":{"b":{"c":[]},"a":"*/"}}}}`,
	`{"$defs":{"json":{"anyOf":[{"type":"string"},{"type":"array","items":{"$ref":"#/$defs/json"}},{"type":"object","additionalProperties":{"$ref":"#/$defs/json"}}]}},"type":"object","properties":{"v":{"$ref":"#/$defs/json"}}}`,
	strings.Repeat(`{"type":"array","items":`, 60) + `{"type":"string"}` + strings.Repeat(`}`, 60),
	strings.Repeat(`{"type":"object","properties":{"a":`, 30) + `{"type":"string"}` + strings.Repeat(`}}`, 30),
	strings.Repeat(`[`, 5000),
	exponential(24),
}

// exponential is a small schema that is huge when its references are written out.
func exponential(n int) string {
	defs := map[string]any{"d0": map[string]any{"type": "string"}}
	for i := 1; i <= n; i++ {
		ref := map[string]any{"$ref": "#/$defs/d" + string(rune('a'+i-2))}
		if i == 1 {
			ref = map[string]any{"$ref": "#/$defs/d0"}
		}
		defs["d"+string(rune('a'+i-1))] = map[string]any{"anyOf": []any{
			map[string]any{"type": "object", "properties": map[string]any{"l": ref, "r": ref}}, map[string]any{"type": "array", "items": ref},
		}}
	}
	text, err := json.Marshal(map[string]any{"$defs": defs, "$ref": "#/$defs/d" + string(rune('a'+n-1))})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// hostileTools have names and descriptions that try to become code.
func hostileTools() []sandbox.Tool {
	var tools []sandbox.Tool
	for _, text := range []string{
		"*/ evil(); /*", "\"\"\"\nevil()\n\"\"\"", "\\\"\\\"\\\"", `\`, "`${evil()}`", "a\u2028evil()", "a\r\nevil()\r\n", "a\x00b", "*\x01/ evil()", "'; evil(); '",
		"\xff\xfe", strings.Repeat("*/", 2000), strings.Repeat(`\`, 999) + `"""`, strings.Repeat("é", 1500), "</script>", "\n\n\n", "# x\nevil()", "@ts-nocheck", "\u202eevil", "*\\/",
	} {
		t := tool("h "+text, "n "+text, `{"type":"object","properties":{`+quote(text)+`:{"description":`+quote(text)+`,"enum":[`+quote(text)+`]}},"required":[`+quote(text)+`]}`, "")
		t.Printed = text
		t.Description = text
		tools = append(tools, t)
		t.Server, t.Name = "hostile", text
		t.Description = strings.Repeat("x", 999) + text
		tools = append(tools, t)
	}
	for _, name := range []string{"str", "int", "float", "bool", "None", "list", "dict", "List", "Dict", "Any", "Union", "Literal", "TypedDict", "Required", "type", "print", "call", "_call", "callMCPTool", "call_mcp_tool",
		"MCPToolError", "Promise", "Array", "Record", "undefined", "object", "self", "async", "helpers", "servers", "typing", "__init__", "__all__", "TYPE_CHECKING", "_UNSET", "constructor", "toString", "then", "default"} {
		tools = append(tools, tool("taken", name, `{"type":"object","properties":{"name":{"type":"string"},"items":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}}}}},"required":["name"]}`, `{"type":"object","properties":{"ok":{"type":"boolean"}}}`))
	}
	return tools
}
