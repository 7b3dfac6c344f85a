package skerry_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
)

// The examples and what needs a server run against this one: scripts/clients.sh starts it. Its default
// template is base, and it has the skills of this repository and the MCP server "files".
var server, key string

func TestMain(m *testing.M) {
	flag.StringVar(&server, "server", "", "address of a server; without it, what needs one is left out")
	flag.StringVar(&key, "key", "", "key of the server")
	flag.Parse()
	if server == "" {
		_ = flag.Set("test.skip", cmp.Or(flag.Lookup("test.skip").Value.String(), "^Example")) // the flag is there
	}
	os.Exit(m.Run())
}

func connect(t *testing.T) *skerry.Client {
	t.Helper()
	if server == "" {
		t.Skip("no -server: scripts/clients.sh runs this test")
	}
	return skerry.New(server, skerry.Options{Key: key})
}

// schema is the part of a JSON Schema that is looked at.
type schema struct {
	Ref        string            `json:"$ref"`
	Type       any               `json:"type"` // a name, or several
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
}

// models are our types with the names of the server's.
var models = map[string]any{
	"ActiveSkill": skerry.ActiveSkill{}, "Approval": skerry.Approval{}, "AuditBadRecord": skerry.AuditBadRecord{}, "AuditRecord": skerry.AuditRecord{},
	"AuditSummary": skerry.AuditSummary{}, "AuditBucket": skerry.AuditBucket{}, "AuditFacet": skerry.AuditFacet{}, "AuditFacetValue": skerry.AuditFacetValue{},
	"AuditVerification": skerry.AuditVerification{}, "CodeBody": skerry.Code{}, "CodeContext": skerry.CodeContext{}, "ContextBody": skerry.ContextOptions{},
	"ContextOutcome": skerry.ContextOutcome{}, "DecisionBody": skerry.Decision{}, "DiskUsage": skerry.DiskUsage{}, "Edited": skerry.Edited{},
	"ExecBody": skerry.Command{}, "ExecInfo": skerry.ExecInfo{}, "ExecResult": skerry.Result{}, "ExecUsage": skerry.Usage{}, "FieldError": skerry.FieldError{},
	"FileChange": skerry.FileChange{}, "FileEntry": skerry.FileEntry{}, "FileListing": skerry.FileListing{}, "FileText": skerry.FileText{}, "Finding": skerry.Finding{},
	"GrepMatch": skerry.GrepMatch{}, "GrepMatches": skerry.GrepMatches{}, "Limit": skerry.Limit{}, "Limits": skerry.TemplateLimits{}, "Problem": skerry.Error{},
	"Prompt": skerry.Prompt{}, "PtySize": skerry.PTYSize{}, "Sandbox": skerry.Sandbox{}, "SandboxBody": skerry.AcquireOptions{}, "ServersAnswer": skerry.ToolServers{},
	"Skill": skerry.Skill{}, "SkillBody": skerry.Script{}, "SkillFile": skerry.SkillFile{}, "SkillFound": skerry.SkillFound{}, "SkillInstalled": skerry.SkillInstalled{},
	"Template": skerry.Template{}, "Thread": skerry.ThreadInfo{}, "Timings": skerry.Timings{}, "ToolCall": skerry.ToolCalled{}, "ToolFound": skerry.Tool{},
	"ToolResult": skerry.ToolResult{}, "ToolSearch": skerry.ToolSearch{}, "ToolServer": skerry.ToolServer{}, "ToolDefinition": skerry.ToolDefinition{}, "Transferred": skerry.Transferred{},
	"Health": skerry.Health{}, "PluginMessage": skerry.PluginMessage{}, "TypedCommand": skerry.TypedCommand{}, "Unpacked": skerry.Unpacked{}, "WatchedChange": skerry.WatchedChange{},
	"ThreadEvent": skerry.ThreadEvent{}, "ThreadUsage": skerry.ThreadUsage{}, "ThreadVersions": skerry.ThreadVersions{}, "ApprovalSummary": skerry.ApprovalSummary{}, "ChangedFiles": skerry.ChangedFiles{},
	"VirtualBody": skerry.VirtualSkill{}, "VirtualSkill": skerry.AddedSkill{}, "Written": skerry.Written{},
}

// TestModels: what the server says it sends and takes is what our types have. It may have more.
func TestModels(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := connect(t).Call(t.Context(), skerry.Request{Method: "GET", Path: "/openapi.json"}, &doc); err != nil {
		t.Fatal(err)
	}
	for name, model := range models {
		s, ok := doc.Components.Schemas[name]
		if !ok {
			t.Errorf("the server has no %s", name)
			continue
		}
		ours := map[string]bool{}
		for f := range reflect.TypeOf(model).Fields() {
			field, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if field == "-" {
				continue
			}
			ours[field] = true
			theirs, ok := s.Properties[field]
			if !ok {
				t.Errorf("%s: the server has no %s", name, field)
			} else if kinds := kindsOf(theirs); kinds != nil && !slices.Contains(kinds, kindOf(f.Type)) {
				t.Errorf("%s.%s is %v, the server's is %v", name, field, kindOf(f.Type), kinds)
			}
		}
		if strings.HasSuffix(name, "Body") {
			for _, field := range s.Required {
				if !ours[field] {
					t.Errorf("%s: the server wants %s", name, field)
				}
			}
		}
	}
}

// kindsOf are the types that a schema allows; nil: any.
func kindsOf(s schema) (kinds []string) {
	switch {
	case s.Ref != "":
		return []string{"object"}
	case s.Type == nil:
		return nil
	}
	text, err := json.Marshal(s.Type)
	if err != nil || json.Unmarshal(text, &kinds) == nil {
		return kinds
	}
	return []string{s.Type.(string)}
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "array"
	case reflect.Map:
		return "object"
	case reflect.Struct:
		if t.Name() == "Time" {
			return "string"
		}
		return "object"
	}
	return "integer"
}

// TestServer goes once through what a thread can do.
func TestServer(t *testing.T) {
	c, ctx := connect(t), t.Context()
	thread := c.Thread("go-test")
	t.Cleanup(func() {
		if err := thread.Delete(t.Context()); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	box, err := thread.Acquire(ctx, skerry.AcquireOptions{Labels: map[string]string{"for": "go-test"}})
	must(err)
	if box.State != "running" || box.Template == "" {
		t.Errorf("%+v", box)
	}
	job, err := thread.Start(ctx, skerry.Command{Command: "read line; echo got $line; sleep 600"})
	must(err)
	must(thread.WriteStdin(ctx, job.ExecID, []byte("it\n")))
	for e, err := range thread.Follow(ctx, job.ExecID, 0) {
		must(err)
		if e.Type == skerry.Stdout {
			if string(e.Data) != "got it\n" {
				t.Errorf("%q", e.Data)
			}
			must(thread.Kill(ctx, job.ExecID))
		}
	}
	end, err := thread.Wait(ctx, job.ExecID)
	must(err)
	if end.Status != skerry.StatusKilled {
		t.Errorf("%+v", end)
	}
	first := 0
	for info, err := range c.Threads(ctx, skerry.ThreadFilter{Labels: map[string]string{"for": "go-test"}}) {
		must(err)
		if first++; info.ThreadID != thread.ID {
			t.Error(info.ThreadID)
		}
	}
	if first != 1 {
		t.Errorf("%d threads", first)
	}
	cc, err := thread.CreateContext(ctx, skerry.ContextOptions{Language: "python"})
	must(err)
	for _, text := range []string{"x = 41", "x + 1"} {
		res, err := thread.ExecuteCode(ctx, skerry.Code{Code: text, ContextID: cc.ContextID})
		must(err)
		if text == "x + 1" && (len(res.Results) != 1 || string(res.Results[0]["text/plain"]) != `"42"`) {
			t.Errorf("%+v", res)
		}
	}
	must(thread.DeleteContext(ctx, cc.ContextID))
	conditions(t, thread)
	servers, err := thread.Servers(ctx)
	must(err)
	if servers.TotalTools == 0 {
		t.Errorf("%+v", servers)
	}
	found, err := thread.SearchTools(ctx, skerry.ToolQuery{Query: "read a text file", Detail: "full", Limit: 2, OutputSchema: true})
	must(err)
	if len(found.Tools) != 2 || found.Tools[0].Output == nil || len(found.Also) != 0 {
		t.Errorf("%+v", found)
	}
	active, err := thread.ActiveTools.Activate(ctx, "files__read_text_file")
	must(err)
	info, err := thread.Info(ctx)
	must(err)
	if active.ShortName != "read_text_file" || !slices.Contains(info.ActiveTools, active.Name) {
		t.Errorf("%+v %v", active, info.ActiveTools)
	}
	must(thread.ActiveTools.PutAway(ctx, active.Name))
	if err := thread.ActiveTools.PutAway(ctx, active.Name); !errors.Is(err, skerry.NotFound) {
		t.Errorf("put away twice: %v", err)
	}
	_, err = thread.ExecuteCode(ctx, skerry.Code{Language: "py", Code: "print(1)", Description: "Prints one"})
	must(err)
	execs, err := thread.Execs(ctx)
	must(err)
	if execs[0].Description != "Prints one" {
		t.Errorf("%+v", execs[0])
	}
	skill, err := thread.ActivateSkill(ctx, "csv-profile")
	must(err)
	if skill.Content == "" || len(skill.Resources) == 0 {
		t.Errorf("%+v", skill)
	}
	folder := filepath.Join(t.TempDir(), "stamper")
	must(errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "SKILL.md"), []byte("---\nname: stamper\ndescription: Stamps.\n---\nRun stamp.sh.\n"), 0o600),
		os.WriteFile(filepath.Join(folder, "stamp.sh"), []byte("#!/bin/sh\nwc -c < /mnt/skills/virtual/stamper/seal.bin\n"), 0o600)))
	for _, seal := range []string{"\xff\x00\xfe", "x"} { // the second one in place of the first
		must(os.WriteFile(filepath.Join(folder, "seal.bin"), []byte(seal), 0o600))
		packed, err := skerry.SkillFolder(folder)
		must(err)
		attached, err := thread.AddSkill(ctx, packed)
		must(err)
		stamped, err := thread.RunSkill(ctx, "stamper", skerry.Script{Script: "stamp.sh"})
		must(err)
		if attached.Category != "virtual" || strings.TrimSpace(stamped.Stdout) != fmt.Sprint(len(seal)) {
			t.Errorf("%+v %+v", attached, stamped)
		}
	}
	if _, err := skerry.SkillFolder(filepath.Dir(folder)); err == nil || !strings.Contains(err.Error(), "no SKILL.md") {
		t.Error(err)
	}
	for text, unknown := range map[string]string{"/none:such x": "none:such", "no command": ""} {
		typed, err := thread.Messages.Read(ctx, text)
		must(err)
		if typed.Recognised || typed.Message != text || typed.Unknown != unknown {
			t.Errorf("%+v", typed)
		}
	}
	records := 0
	for r, err := range c.Audit(ctx, skerry.AuditFilter{Thread: thread.ID, Exec: job.ExecID}) {
		must(err)
		if records++; r.Exec != job.ExecID {
			t.Errorf("%+v", r)
		}
	}
	if records < 2 {
		t.Errorf("%d records of the exec", records)
	}
}

// conditions writes a file only when it is the version that is known.
func conditions(t *testing.T, thread *skerry.Thread) {
	t.Helper()
	const path = "/mnt/user-data/workspace/conditions.txt"
	put := func(text string, only ...skerry.Condition) (string, error) {
		w, err := thread.Put(t.Context(), path, strings.NewReader(text), only...)
		if err != nil {
			return "", err
		}
		return w.ETag, nil
	}
	first, err := put("first", skerry.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	second, err := put("second", skerry.IfMatch(`"other"`, first))
	if err != nil {
		t.Fatal(err)
	}
	for name, only := range map[string]skerry.Condition{"an old version": skerry.IfMatch(first), "no file": skerry.IfAbsent()} {
		if _, err := put("third", only); !errors.Is(err, skerry.ErrPreconditionFailed) || !errors.Is(err, skerry.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file, err := thread.Get(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if text, err := io.ReadAll(file); err != nil || string(text) != "second" || file.ETag != second {
		t.Errorf("%q %s, not %s: %v", text, file.ETag, second, err)
	}
	if _, err := thread.Exec(t.Context(), skerry.Command{Command: "echo by a program > conditions.txt"}); err != nil {
		t.Fatal(err)
	}
	if _, err := put("third", skerry.IfMatch(second)); !errors.Is(err, skerry.ErrPreconditionFailed) {
		t.Errorf("a program changed it: %v", err)
	}
	if _, err := put("third", skerry.IfMatch("*")); err != nil {
		t.Error(err)
	}
}
