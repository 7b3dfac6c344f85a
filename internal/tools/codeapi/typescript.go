package codeapi

import (
	"maps"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi/wrapperpath"
)

// tsFunction is one tool with the names that its wrapper uses. types is unique within its folder too.
type tsFunction struct {
	tool     sandbox.Tool
	function string
	types    string
}

// fileNames returns names of files. Names that differ in nothing but the case of letters are one name, the
// first of them: a compiler refuses files that some file systems take for the same.
type fileNames map[string]string

func (f fileNames) of(name string) string {
	file := wrapperpath.FileName(name)
	low := strings.ToLower(file)
	if first, known := f[low]; known {
		return first
	}
	f[low] = file
	return file
}

// addTypeScript adds <folder>/<owner>/*.ts. Tools whose names become one file share that file.
func addTypeScript(tree map[string][]byte, of owners, tools []sandbox.Tool) {
	folders, folderNames := map[string][]sandbox.Tool{}, fileNames{}
	for _, t := range tools {
		name := folderNames.of(t.Server)
		folders[name] = append(folders[name], t)
	}
	for folder, tools := range folders {
		addTSFolder(tree, of, of.folder+folder+"/", tools)
	}
}

func addTSFolder(tree map[string][]byte, of owners, dir string, tools []sandbox.Tool) {
	files, written := map[string][]tsFunction{}, fileNames{"index": "index"}
	functions := names{used: map[string]bool{}}
	for _, t := range tools {
		name := functions.take(keepOff(camelCase(t.Name), reservedWords))
		file := written.of(t.Name) + ".ts"
		files[file] = append(files[file], tsFunction{tool: t, function: name, types: pascal(name)})
	}
	var index writer
	index.line("// All tools of %s %s.", of.title, quote(tools[0].Server))
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if file != "index.ts" {
			index.line(`export * from "./%s";`, file)
			tree[dir+file] = tsFile(files[file])
		}
	}
	// A tool that is itself called "index" lives in the index.
	if own, ok := files["index.ts"]; ok {
		index.Write(tsFile(own))
	}
	tree[dir+"index.ts"] = index.Bytes()
}

// pascal writes an identifier with a capital first letter.
func pascal(name string) string {
	if name == "" {
		return name
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

func tsFile(functions []tsFunction) []byte {
	var w writer
	w.line(`import { callMCPTool } from "../../helpers/callMCPTool.ts";`)
	for _, f := range functions {
		tsWrapper(&w, f)
	}
	return w.Bytes()
}

func tsWrapper(w *writer, f tsFunction) {
	in, out := f.types+"Input", f.types+"Output"
	w.line("")
	plain, empty := writeTypes(w, in, parse(f.tool.Input))
	w.line("")
	if len(f.tool.Output) == 0 {
		w.line("export type %s = unknown;", out)
	} else {
		writeOutput(w, out, f.tool)
	}
	parameter, argument := "input: "+in, "input"
	if empty {
		parameter += " = {}"
	}
	if !plain {
		argument = "input as unknown as object"
	}
	w.line("\n%sexport async function %s(%s): Promise<%s> {", tsCommentOf("", cleaned(f.tool.Description, maxToolDescription)), f.function, parameter, out)
	w.line("  return callMCPTool<%s>(%s, %s);", out, quote(printed(f.tool)), argument)
	w.line("}")
}

func writeOutput(w *writer, name string, t sandbox.Tool) {
	writeTypes(w, name, parse(t.Output))
}
