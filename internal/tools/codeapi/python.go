package codeapi

import (
	"maps"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxParameters bounds the parameters that are written out; the others are reached by **kwargs.
const maxParameters = 200

// addPython adds a package for each server, or skill. A server whose name is an
// identifier keeps it; of two that become one identifier the second gets a number.
func addPython(tree map[string][]byte, of owners, tools []sandbox.Tool) {
	byServer := map[string][]sandbox.Tool{}
	var servers []string
	for _, t := range tools {
		if byServer[t.Server] == nil {
			servers = append(servers, t.Server)
		}
		byServer[t.Server] = append(byServer[t.Server], t)
	}
	slices.SortStableFunc(servers, func(a, b string) int {
		return boolRank(isIdentifier(a)) - boolRank(isIdentifier(b))
	})
	modules := names{used: map[string]bool{}, separator: "_"}
	for _, server := range servers {
		module := modules.take(moduleName(server))
		tree[of.folder+module+"/__init__.py"] = pyModule(of, server, byServer[server])
	}
}

func boolRank(first bool) int {
	if first {
		return 0
	}
	return 1
}

func pyModule(of owners, server string, tools []sandbox.Tool) []byte {
	functions := names{used: map[string]bool{}, separator: "_"}
	types := names{used: maps.Clone(pyNames), separator: "_"}
	var body, defs writer
	var all []string
	for _, t := range tools {
		name := functions.take(keepOff(snakeCase(t.Name), pyTaken))
		all = append(all, quote(name))
		pyFunction(&body, name, t, func(schema any) *pyTypes {
			return &pyTypes{schema: schema, names: &types, defs: &defs, refs: map[string]string{}}
		})
	}
	var w writer
	w.WriteString(docstring("", clean("Tools of "+of.title+" "+server+".")))
	w.line(`from __future__ import annotations

from helpers.call_mcp_tool import MCPToolError as MCPToolError
from helpers.call_mcp_tool import call_mcp_tool as _call_mcp_tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union
    from typing import Dict as Dict, List as List, Literal as Literal, Required as Required, TypedDict as TypedDict
%s
__all__ = [%s]

_UNSET: Any = ...  # the default of a parameter that is then left out of the call


def _call(_tool: str, _named: Dict[str, Any], _input: Union[Dict[str, Any], None], _more: Dict[str, Any]) -> Any:
    for _name in [_name for _name in _named if _named[_name] is _UNSET]:
        del _named[_name]
    return _call_mcp_tool(_tool, {**(_input or {}), **_more, **_named})`, defs.String(), strings.Join(all, ", "))
	w.Write(body.Bytes())
	return w.Bytes()
}

// pyParameter is a parameter that has a name in Python.
type pyParameter struct {
	name, annotation string
	required         bool
}

// pyFunction writes the wrapper of one tool. A parameter whose name Python does not allow is given in
// _input or by **.
func pyFunction(w *writer, name string, t sandbox.Tool, types func(schema any) *pyTypes) {
	schema, class := parse(t.Input), pascal(camelCase(name))
	params, others := pyParameters(types(schema), class)
	var signature, values []string
	for _, p := range params {
		s := p.name + ": " + p.annotation
		if !p.required {
			s += " = _UNSET"
		}
		signature = append(signature, s)
		values = append(values, quote(p.name)+": "+p.name)
	}
	rest := "kwargs"
	for slices.ContainsFunc(params, func(p pyParameter) bool { return p.name == rest }) {
		rest += "_"
	}
	signature = append(signature, "_input: Union[Dict[str, Any], None] = None", "**"+rest+": Any")
	result := "Any"
	if len(t.Output) > 0 {
		out := types(parse(t.Output))
		result = out.of(out.schema, pyPlace{name: class + "Output"})
	}
	w.line("\n\ndef %s(%s) -> %s:", name, strings.Join(signature, ", "), result)
	w.WriteString(docstring("    ", pyDescription(t.Description, schema, others)))
	w.line("    return _call(%s, {%s}, _input, %s)", quote(printed(t)), strings.Join(values, ", "), rest)
}

// pyParameters returns the parameters, required ones first, and the names that cannot be parameters.
func pyParameters(types *pyTypes, class string) (params []pyParameter, others []string) {
	o := types.follow(types.schema)
	properties := o.object("properties")
	if properties == nil {
		return nil, nil
	}
	required := o.required()
	for _, key := range properties.keys {
		if !isIdentifier(key) || key[0] == '_' || pythonKeywords[key] || len(params) == maxParameters {
			others = append(others, key)
			continue
		}
		params = append(params, pyParameter{name: key, annotation: types.of(properties.members[key], pyPlace{name: class + pascal(camelCase(key))}), required: required[key]})
	}
	slices.SortStableFunc(params, func(a, b pyParameter) int { return boolRank(a.required) - boolRank(b.required) })
	return params, others
}

// pyDescription is the tool's description with what is known of its parameters.
func pyDescription(text string, schema any, others []string) []string {
	lines := clean(text)
	o := (&pyTypes{schema: schema}).follow(schema)
	var about []string
	if properties := o.object("properties"); properties != nil {
		for _, key := range properties.keys[:min(len(properties.keys), maxParameters)] {
			p, _ := properties.members[key].(*object)
			if d := describe(p); p != nil && d != "" {
				about = append(about, "    "+strings.Join(clean(key), " ")+": "+strings.Join(clean(d), " "))
			}
		}
	}
	if len(others) > 0 {
		about = append(about, "    (by **{…} or _input: "+strings.Join(clean(strings.Join(others, ", ")), " ")+")")
	}
	if len(about) == 0 {
		return lines
	}
	return append(append(lines, "", "Args:"), about...)
}
