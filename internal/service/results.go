package service

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// Shown is a result as the API shows it: no list of files is an empty one.
func Shown(res *sandbox.Result) any {
	if res.Files == nil {
		r := *res
		r.Files = []sandbox.FileChange{}
		res = &r
	}
	if res.ToolsCalled != nil {
		return &codeResult{Result: res, ToolsCalled: res.ToolsCalled}
	}
	return res
}

// codeResult is the result of execute_code, which lists the tools called also when there were none.
type codeResult struct {
	*sandbox.Result
	ToolsCalled []sandbox.ToolCall `json:"tools_called"`
}

// ShownCode is Shown for execute_code.
func ShownCode(res *sandbox.Result) any {
	if res.ToolsCalled == nil {
		r := *res
		r.ToolsCalled = []sandbox.ToolCall{}
		res = &r
	}
	return Shown(res)
}
