package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// threads is one thread with skills of its own.
type threads struct {
	Threads
	own   []sandbox.Skill
	added []sandbox.VirtualSkill
}

func (t *threads) ThreadSkills(context.Context, sandbox.Caller, string) ([]sandbox.Skill, error) {
	return t.own, nil
}

func (t *threads) SearchSkills(context.Context, sandbox.Caller, string, string) ([]sandbox.SkillFound, int, error) {
	return []sandbox.SkillFound{{Name: "own"}}, 1, nil
}

func (t *threads) SkillManifest(_ context.Context, _ sandbox.Caller, _, name string) (sandbox.SkillManifest, error) {
	if len(t.added) > 0 {
		return sandbox.SkillManifest{Name: t.added[0].Name}, nil
	}
	return sandbox.SkillManifest{}, sandbox.Errorf(sandbox.NotFound, "there is no skill %q", name)
}

func (t *threads) ActivateSkill(_ context.Context, _ sandbox.Caller, _, name string) (sandbox.ActiveSkill, error) {
	if name == "own" {
		return sandbox.ActiveSkill{Name: name}, nil
	}
	if len(t.added) == 0 {
		return sandbox.ActiveSkill{}, sandbox.Errorf(sandbox.NotFound, "there is no skill %q", name)
	}
	return sandbox.ActiveSkill{Name: t.added[0].Name, Body: "read it"}, nil
}

func (t *threads) AddVirtualSkill(_ context.Context, _ sandbox.Caller, _ string, sk sandbox.VirtualSkill) (sandbox.Skill, error) {
	t.added = append(t.added, sk)
	t.own = append(t.own, sandbox.Skill{Name: sk.Name, Category: sandbox.ServerCategory + sk.Server})
	return t.own[len(t.own)-1], nil
}

// server is an MCP server with files.
type server struct {
	items  []sandbox.UpstreamItem
	files  map[string]any // by URI: a text, or bytes
	lists  int
	reads  []string
	broken error
}

func (s *server) Upstream(context.Context, sandbox.Caller, string, sandbox.UpstreamKind, string) ([]sandbox.UpstreamItem, error) {
	s.lists++
	return s.items, s.broken
}

func (s *server) AskUpstream(_ context.Context, _ sandbox.Caller, _ string, r sandbox.UpstreamRequest) (json.RawMessage, error) {
	var p struct{ URI string }
	if err := json.Unmarshal(r.Params, &p); err != nil || r.Method != "resources/read" {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s %s", r.Method, r.Params)
	}
	s.reads = append(s.reads, p.URI)
	content := map[string]any{"uri": p.URI}
	switch c := s.files[p.URI].(type) {
	case string:
		content["text"] = c
	case []byte:
		content["blob"] = base64.StdEncoding.EncodeToString(c)
	default:
		return nil, sandbox.Errorf(sandbox.ToolFailed, "no such resource")
	}
	return json.Marshal(map[string]any{"contents": []any{content}})
}

const manifest = "---\nname: pdf\ndescription: Reads PDF files\n---\nRun run.sh.\n"

// add lists a skill as its server would. change may spoil the list.
func (s *server) add(t *testing.T, name string, change func(listed map[string]any)) {
	t.Helper()
	base := "skill://office/" + name + "/"
	resources := []any{}
	for _, file := range []string{"SKILL.md", "logo.bin"} {
		data := []byte(strings.Replace(manifest, "pdf", name, 1))
		if file != "SKILL.md" {
			data = []byte{0xff, 0, 1}
		}
		sum := sha256.Sum256(data)
		resources = append(resources, map[string]any{"uri": base + file, "digest": "sha256:" + hex.EncodeToString(sum[:]), "size": len(data)})
		s.files[base+file] = data
		if file == "SKILL.md" {
			s.files[base+file] = string(data)
		}
	}
	listed := map[string]any{"uri": base + "SKILL.md", "frontmatter": map[string]any{"name": name, "description": "Reads PDF files"}, "resources": resources}
	if change != nil {
		change(listed)
	}
	raw, err := json.Marshal(listed)
	if err != nil {
		t.Fatal(err)
	}
	s.items = append(s.items, sandbox.UpstreamItem{Server: "docs", Name: base + "SKILL.md", Raw: raw})
}

var ann = sandbox.Caller{Owner: sandbox.Owner{Tenant: "default", User: "ann"}}

// TestOffer: skills of servers stand behind those of the thread, marked by their server, and nothing of them
// is read until one is activated. Then all of its files are in the thread.
func TestOffer(t *testing.T) {
	t.Parallel()
	mine, far := &threads{own: []sandbox.Skill{{Name: "own"}}}, &server{files: map[string]any{}}
	far.add(t, "pdf", nil)
	s := New(mine, far)
	names := func() string {
		t.Helper()
		list, err := s.ThreadSkills(t.Context(), ann, "t")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, sk := range list {
			names = append(names, sk.Name+" "+sk.Category)
		}
		return strings.Join(names, ",")
	}
	const want = "docs:pdf mcp:docs,own "
	if got := names(); got != want {
		t.Errorf("%q", got)
	}
	for query, hits := range map[string]int{"": 2, "pdf": 2, "weather": 1} {
		found, n, err := s.SearchSkills(t.Context(), ann, "t", query)
		if err != nil || n != hits || len(found) != hits || found[0].Name != "own" {
			t.Errorf("%q: %v %d %v", query, found, n, err)
		}
	}
	if len(far.reads) != 0 || far.lists != 1 {
		t.Errorf("read before it was activated: %v, listed %d times", far.reads, far.lists)
	}
	other := ann
	other.KeyID = "another" // it may use other servers, so what the first key was shown is not for it
	if _, err := s.ThreadSkills(t.Context(), other, "t"); err != nil || far.lists != 2 {
		t.Errorf("another key: listed %d times, %v", far.lists, err)
	}
	for range 2 {
		active, err := s.ActivateSkill(t.Context(), ann, "t", "docs:pdf")
		if err != nil || active.Name != "docs:pdf" || active.Body != "read it" {
			t.Fatalf("%+v, %v", active, err)
		}
	}
	if len(mine.added) != 1 || len(far.reads) != 2 {
		t.Fatalf("added %d times, %v", len(mine.added), far.reads)
	}
	got := mine.added[0]
	if got.Name != "docs--pdf" || got.Server != "docs" || got.Files["logo.bin"] != "\xff\x00\x01" || got.Files["SKILL.md"] != manifest {
		t.Errorf("%+v", got)
	}
	if got := names(); got != want {
		t.Errorf("after its activation: %q", got)
	}
	if active, err := s.ActivateSkill(t.Context(), ann, "t", "own"); err != nil || active.Name != "own" {
		t.Errorf("%+v, %v", active, err)
	}
	if _, err := s.ActivateSkill(t.Context(), ann, "other", "docs:none"); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		t.Error(err)
	}
}

// TestRefused: what breaks the rules of the extension is not offered, and what is not as it was listed is
// not added.
func TestRefused(t *testing.T) {
	t.Parallel()
	resource := func(listed map[string]any, i int) map[string]any {
		return listed["resources"].([]any)[i].(map[string]any)
	}
	for why, change := range map[string]func(map[string]any){
		"another scheme": func(l map[string]any) { l["uri"] = "https://office/pdf/SKILL.md" },
		"another name":   func(l map[string]any) { l["frontmatter"].(map[string]any)["name"] = "doc" },
		"no description": func(l map[string]any) { l["frontmatter"].(map[string]any)["description"] = " " },
		"a long description": func(l map[string]any) {
			l["frontmatter"].(map[string]any)["description"] = strings.Repeat("é", maxDescription+1)
		},
		"no frontmatter":     func(l map[string]any) { delete(l, "frontmatter") },
		"no SKILL.md":        func(l map[string]any) { l["resources"] = l["resources"].([]any)[1:] },
		"a file elsewhere":   func(l map[string]any) { resource(l, 1)["uri"] = "skill://office/other/x" },
		"a file that leaves": func(l map[string]any) { resource(l, 1)["uri"] = "skill://office/pdf/..%2fx" },
		"a file twice":       func(l map[string]any) { resource(l, 1)["uri"] = "skill://office/pdf/SKILL.md" },
		"too large":          func(l map[string]any) { resource(l, 1)["size"] = 1 << 40 },
		"below nothing":      func(l map[string]any) { resource(l, 1)["size"] = -1 },
		"too many": func(l map[string]any) {
			for i := range 600 {
				l["resources"] = append(l["resources"].([]any), map[string]any{"uri": fmt.Sprint("skill://office/pdf/", i), "size": 0})
			}
		},
	} {
		far := &server{files: map[string]any{}}
		far.add(t, "pdf", change)
		if list, err := New(&threads{}, far).ThreadSkills(t.Context(), ann, "t"); err != nil || len(list) != 0 {
			t.Errorf("%s: %v, %v", why, list, err)
		}
	}
	const logo, text = "skill://office/pdf/logo.bin", "skill://office/pdf/SKILL.md"
	for why, spoil := range map[string]func(*server){
		"another digest":      func(s *server) { s.files[logo] = []byte{0xff, 0, 2} },
		"another size":        func(s *server) { s.files[logo] = []byte{0xff, 0, 1, 0} },
		"a file that is gone": func(s *server) { delete(s.files, logo) },
		"another SKILL.md":    func(s *server) { s.files[text] = strings.Replace(manifest, "Run", "Ran", 1) },
		"another frontmatter": func(s *server) {
			s.items = nil
			s.add(t, "pdf", func(l map[string]any) { l["frontmatter"].(map[string]any)["description"] = "harmless" })
		},
	} {
		mine, far := &threads{}, &server{files: map[string]any{}}
		far.add(t, "pdf", nil)
		spoil(far)
		if _, err := New(mine, far).ActivateSkill(t.Context(), ann, "t", "docs:pdf"); sandbox.KindOf(err) != sandbox.ToolFailed || len(mine.added) != 0 {
			t.Errorf("%s: %v, added %v", why, err, mine.added)
		}
	}
	// A skill of the user's own is not replaced.
	mine, far := &threads{own: []sandbox.Skill{{Name: "docs--pdf", Category: "custom"}}}, &server{files: map[string]any{}}
	far.add(t, "pdf", nil)
	if _, err := New(mine, far).ActivateSkill(t.Context(), ann, "t", "docs:pdf"); sandbox.KindOf(err) != sandbox.Conflict {
		t.Error(err)
	}
	// Servers that do not answer take nothing from the thread.
	far.broken = sandbox.Errorf(sandbox.Unavailable, "no answer")
	if list, err := New(mine, far).ThreadSkills(t.Context(), ann, "t"); err != nil || !slices.ContainsFunc(list, func(sk sandbox.Skill) bool { return sk.Category == "custom" }) {
		t.Errorf("%v, %v", list, err)
	}
}
