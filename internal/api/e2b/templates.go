package e2b

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// templates serves what SDKs ask about templates, which only the server's operator makes.
type templates struct{ *Adapter }

// Names of E2B's own templates, which SDKs ask for when their caller names none.
const (
	baseTemplate        = "base"
	interpreterTemplate = "code-interpreter-v1"
	// dataTemplate has the packages that programs expect of E2B's interpreter.
	dataTemplate = "data"
)

// named returns the template of ours that a name of a client stands for.
func (a templates) named(name string) (sandbox.Template, error) {
	all := a.o.Sandboxes.Templates()
	find := func(name string) int {
		return slices.IndexFunc(all, func(t sandbox.Template) bool { return t.Name == name })
	}
	target, configured := a.o.Templates[name]
	switch {
	case configured:
	case name == "" || name == baseTemplate:
		target = a.o.DefaultTemplate
	case name == interpreterTemplate && find(dataTemplate) >= 0:
		target = dataTemplate
	case name == interpreterTemplate:
		target = a.o.DefaultTemplate
	default:
		target = name
	}
	i := find(target)
	if i < 0 {
		return sandbox.Template{}, sandbox.Errorf(sandbox.NotFound, "template %.200q not found; GET /api/templates lists them", name)
	}
	return all[i], nil
}

// guessed reports whether t stands for a name only because the server has it, so the default template serves, too, where
// its image was not made.
func (a templates) guessed(name string, t sandbox.Template) bool {
	_, configured := a.o.Templates[name]
	return name == interpreterTemplate && !configured && t.Name != a.o.DefaultTemplate
}

// aliases are the names by which clients reach each template beside its own.
func (a templates) aliases() map[string][]string {
	names := []string{baseTemplate, interpreterTemplate}
	for name := range a.o.Templates {
		names = append(names, name)
	}
	slices.Sort(names)
	of := map[string][]string{}
	for _, name := range slices.Compact(names) {
		if t, err := a.named(name); err == nil && t.Name != name {
			of[t.Name] = append(of[t.Name], name)
		}
	}
	return of
}

// templateView is a template as E2B's API shows it. What only builds have is empty.
type templateView struct {
	ID          string    `json:"templateID"`
	Build       string    `json:"buildID"`
	BuildStatus string    `json:"buildStatus"`
	BuildCount  int       `json:"buildCount"`
	CPU         int       `json:"cpuCount"`
	MemoryMB    int64     `json:"memoryMB"`
	DiskMB      int64     `json:"diskSizeMB"`
	Public      bool      `json:"public"`
	Aliases     []string  `json:"aliases"`
	Names       []string  `json:"names"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	CreatedBy   *struct{} `json:"createdBy"`
	SpawnedAt   *struct{} `json:"lastSpawnedAt"`
	SpawnCount  int       `json:"spawnCount"`
	Version     string    `json:"envdVersion"`
}

func (a templates) list(w http.ResponseWriter, _ *http.Request, _ request) error {
	aliases := a.aliases()
	out := []templateView{}
	for _, t := range a.o.Sandboxes.Templates() {
		names := append([]string{t.Name}, aliases[t.Name]...)
		out = append(out, templateView{
			ID: t.Name, BuildStatus: "ready", CPU: max(1, int(t.Limits.CPUMillis/1000)), MemoryMB: t.Limits.MemoryBytes >> 20, DiskMB: t.Limits.DiskBytes >> 20,
			Public: true, Aliases: names, Names: names, Version: envdVersion,
		})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// alias tells whether there is a template of a name: GET /templates/aliases/{name}. All else below /templates is about
// builds.
func (a templates) alias(w http.ResponseWriter, r *http.Request, _ request) error {
	escaped, ok := strings.CutPrefix(r.URL.EscapedPath(), "/templates/aliases/")
	name, err := url.PathUnescape(escaped)
	if !ok || err != nil {
		return notSupported("templates")
	}
	t, err := a.named(name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"templateID": t.Name, "public": true})
	return nil
}
