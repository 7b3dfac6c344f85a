package skills

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

func TestVirtuals(t *testing.T) {
	v := NewVirtuals(newHouse(t, nil).Library)
	mine, other := sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: "a"}, sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "u"}, ID: "b"}
	sk, err := v.Add(mine, sandbox.VirtualSkill{Name: "now", Description: "when: \"quoted\"\nand more", Body: "# Do\n", Files: map[string]string{"scripts/run.py": "print(1)"}})
	if err != nil || sk.Name != "now" || sk.Category != sandbox.CategoryVirtual || sk.Location != "/mnt/skills/virtual/now/SKILL.md" || !sk.Trusted || !strings.Contains(sk.Description, `"quoted"`) {
		t.Fatalf("%+v, %v", sk, err)
	}
	if n := len(v.Of(mine)); n != 1 || len(v.Of(other)) != 0 {
		t.Errorf("%d of the thread, %d of another", n, len(v.Of(other)))
	}
	for want, bad := range map[sandbox.Kind][]sandbox.VirtualSkill{
		sandbox.Conflict: {{Name: "now", Description: "x"}},
		sandbox.Invalid: {
			{Name: "../x", Description: "x"}, {Name: "", Description: "x"}, {Name: "x", Description: " "}, {Name: "x", Description: "d", Files: map[string]string{"SKILL.md": ""}},
			{Name: "x", Description: "d", Files: map[string]string{"../y": ""}}, {Name: "x", Description: "d", Files: map[string]string{"/y": ""}}, {Name: "x", Description: "d", Files: map[string]string{"a": "", "a/b": ""}},
			{Name: "x", Description: "d", Body: strings.Repeat("x", format.MaxBytes)},
		},
	} {
		for _, b := range bad {
			if _, err := v.Add(mine, b); !errors.Is(err, want) {
				t.Errorf("%.60v: %v, want %s", b, err, want)
			}
		}
	}
	whole := "---\nname: other\ndescription: from a folder\nlicense: MIT\n---\nRun it.\n"
	again, err := v.Add(mine, sandbox.VirtualSkill{Name: "now", Replace: true, Files: map[string]string{"SKILL.md": whole, "run": "#!/bin/sh\n", "logo.png": "\x89PNG\xff"}})
	if err != nil || again.License != "MIT" || again.Digest == sk.Digest || len(v.Of(mine)) != 1 {
		t.Errorf("replaced: %+v, %v", again, err)
	}
	for _, f := range v.Of(mine)[0].files {
		if f.Exec != (f.Path == "run") {
			t.Errorf("%+v", f)
		}
	}
	for _, bad := range []sandbox.VirtualSkill{{Name: "now", Replace: true}, {Name: "now", Replace: true, Files: map[string]string{"SKILL.md": "no frontmatter"}}, {Name: "now", Replace: true, Files: map[string]string{"skill.md": whole}}} {
		if _, err := v.Add(mine, bad); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if v.count != 1 || len(v.Of(mine)) != 1 || v.Of(mine)[0].Skill.Digest != again.Digest {
		t.Errorf("what was refused is kept: %d", v.count)
	}
	if err := v.Remove(other, "now"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("of another thread: %v", err)
	}
	if err := v.Remove(mine, "now"); err != nil || v.count != 0 || len(v.all) != 0 {
		t.Errorf("%v, %d", err, v.count)
	}
	if err := v.Remove(mine, "now"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("%v", err)
	}
}

func TestVirtualsAreBounded(t *testing.T) {
	v := NewVirtuals(newHouse(t, nil).Library)
	th := sandbox.Thread{ID: "a"}
	var wg sync.WaitGroup
	var mu sync.Mutex
	kinds := map[sandbox.Kind]int{}
	for i := range maxVirtual + 10 {
		wg.Go(func() {
			_, err := v.Add(th, sandbox.VirtualSkill{Name: fmt.Sprintf("s%d", i), Description: "x"})
			mu.Lock()
			defer mu.Unlock()
			kinds[sandbox.KindOf(err)]++
		})
	}
	wg.Wait()
	if kinds[sandbox.QuotaExceeded] != 10 || len(v.Of(th)) != maxVirtual {
		t.Errorf("%v, %d skills", kinds, len(v.Of(th)))
	}
	v.Forget(th)
	if v.count != 0 || len(v.Of(th)) != 0 {
		t.Errorf("%d after the thread is gone", v.count)
	}
}

// TestOrder: the skills that a thread was given come first, in the order in which it was given them; one that is replaced
// stays where it was. All others follow by name.
func TestOrder(t *testing.T) {
	t.Parallel()
	list := []sandbox.Skill{
		{Name: "b", Category: sandbox.CategoryPublic}, {Name: "zeta", Category: sandbox.CategoryVirtual}, {Name: "a", Category: sandbox.CategoryCustom},
		{Name: "alpha", Category: sandbox.CategoryVirtual}, {Name: "c", Category: sandbox.ServerCategory + "s"},
	}
	InOrder(list)
	var names []string
	for _, sk := range list {
		names = append(names, sk.Name)
	}
	if got := strings.Join(names, " "); got != "zeta alpha a b c" {
		t.Errorf("in the order %s", got)
	}
	v := &Virtuals{all: map[sandbox.Thread]map[string]*virtual{}, make: func(_ sandbox.Owner, name string, _ map[string][]byte) (*Member, error) {
		return &Member{Skill: sandbox.Skill{Name: name}}, nil
	}}
	on := sandbox.Thread{ID: "t"}
	for _, name := range []string{"zeta", "alpha", "mid", "zeta"} {
		if _, err := v.Add(on, sandbox.VirtualSkill{Name: name, Description: "x", Replace: true}); err != nil {
			t.Fatal(err)
		}
	}
	names = nil
	for _, m := range v.Of(on) {
		names = append(names, m.Skill.Name)
	}
	if got := strings.Join(names, " "); got != "zeta alpha mid" {
		t.Errorf("a thread has %s", got)
	}
}
