package runnable

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake plays sandboxes.
type fake struct {
	image  atomic.Value
	probes atomic.Int64
	answer func(ctx context.Context, template string) ([]byte, error)
}

func (f *fake) Image(_ context.Context, template string) (string, error) {
	if template == "none" {
		return "", sandbox.Errorf(sandbox.NotFound, "there is no template %q", template)
	}
	image, _ := f.image.Load().(string)
	return image, nil
}

func (f *fake) Probe(ctx context.Context, template, script string) ([]byte, error) {
	f.probes.Add(1)
	if script != probeScript {
		return nil, errors.New("another script")
	}
	return f.answer(ctx, template)
}

// opener writes a skill into a folder.
func opener(t *testing.T, files map[string]string) func() (*os.Root, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, skillOf(files)); err != nil {
		t.Fatal(err)
	}
	return func() (*os.Root, error) { return os.OpenRoot(dir) }
}

func newProber(t *testing.T, answer func(ctx context.Context, template string) ([]byte, error)) (*Prober, *fake) {
	t.Helper()
	f := &fake{answer: answer}
	f.image.Store("sha256:1")
	p := NewProber(f, slog.New(slog.DiscardHandler))
	t.Cleanup(p.Close)
	return p, f
}

func TestProbedOncePerImage(t *testing.T) {
	t.Parallel()
	p, f := newProber(t, func(context.Context, string) ([]byte, error) {
		return []byte("c\tpandoc\nm\tjson\nd\tPandas\t1.0\nv\t3.11.2\nn\tdocx\t9.0.0\ng\tx\t1\ns\tpoppler-utils\t1\nend\n"), nil
	})
	files := opener(t, md("`pandoc x` and `pip install pandas`"))
	for range 3 {
		if r := p.Of(t.Context(), "base", "sha256:a", files); r.Template != sandbox.RunnableYes {
			t.Errorf("%+v", r)
		}
	}
	if r := p.Of(t.Context(), "base", "sha256:b", opener(t, md("`qpdf x`"))); r.Template != sandbox.RunnableNo || len(r.Missing) != 1 {
		t.Errorf("%+v", r)
	}
	if n := f.probes.Load(); n != 1 {
		t.Errorf("%d probes", n)
	}
	f.image.Store("sha256:2")
	p.Of(t.Context(), "base", "sha256:a", files)
	if n := f.probes.Load(); n != 2 {
		t.Errorf("%d probes of two images", n)
	}
}

func TestWhatCannotBeProbed(t *testing.T) {
	t.Parallel()
	p, f := newProber(t, func(context.Context, string) ([]byte, error) { return nil, errors.New("/host/path: broken") })
	needy := opener(t, md("`pandoc x`"))
	for range 2 {
		r := p.Of(t.Context(), "base", "sha256:a", needy)
		if r.Template != sandbox.RunnableUnknown || len(r.Unsure) != 1 || strings.Contains(r.Unsure[0], "/host") || r.Missing == nil {
			t.Errorf("%+v", r)
		}
	}
	if n := f.probes.Load(); n != 1 {
		t.Errorf("a failed probe was tried %d times at once", n)
	}
	if r := p.Of(t.Context(), "none", "sha256:a", needy); r.Template != sandbox.RunnableUnknown || !strings.Contains(r.Unsure[0], "no template") {
		t.Errorf("%+v", r)
	}
	if r := p.Of(t.Context(), "base", "sha256:c", opener(t, md("Think."))); r.Template != sandbox.RunnableYes {
		t.Errorf("instructions: %+v", r)
	}
}

// TestListsDoNotWaitForAProbe: who asks while a probe is under way is told so when their time is over.
func TestListsDoNotWaitForAProbe(t *testing.T) {
	t.Parallel()
	p, _ := newProber(t, func(ctx context.Context, _ string) ([]byte, error) {
		<-ctx.Done() // until the prober is closed
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if r := p.Of(ctx, "base", "sha256:a", opener(t, md("`pandoc x`"))); r.Template != sandbox.RunnableUnknown || !strings.Contains(r.Unsure[0], "still") {
		t.Errorf("%+v", r)
	}
	// skerry doctor goes on asking for as long as the error has no cause.
	if _, err := p.Profile(ctx, "base"); sandbox.KindOf(err) != sandbox.Unavailable || errors.Unwrap(err) != nil {
		t.Errorf("under way: %v, because of %v", err, errors.Unwrap(err))
	}
}

// TestWhatIsKnownStaysKnown: an answer that was there is given however long ago its probe began, and also to who has no time.
func TestWhatIsKnownStaysKnown(t *testing.T) {
	t.Parallel()
	p, f := newProber(t, func(context.Context, string) ([]byte, error) { return []byte("c\tpandoc\nend\n"), nil })
	files := opener(t, md("`pandoc x`"))
	p.Of(t.Context(), "base", "sha256:a", files)
	p.profiles["sha256:1"].began = time.Now().Add(-time.Hour)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		for _, ctx := range []context.Context{t.Context(), over} {
			if r := p.Of(ctx, "base", "sha256:a", files); r.Template != sandbox.RunnableYes {
				t.Fatalf("%+v", r)
			}
		}
	}
	if n := f.probes.Load(); n != 1 {
		t.Errorf("%d probes", n)
	}
}

func TestProbeOutputIsData(t *testing.T) {
	t.Parallel()
	for name, out := range map[string]string{
		"cut":     "c\tpandoc\n",
		"garbage": "c\tpandoc\nrm -rf\nend\n",
		"long":    "c\t" + strings.Repeat("x", 1<<20) + "\nend\n",
		"much":    strings.Repeat("c\tx\n", maxProbeEntries+2) + "end\n",
		"empty":   "",
	} {
		if _, err := parseProfile([]byte(out)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestProbeScript runs the script where it runs in a sandbox: under sh.
func TestProbeScript(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, sh)
	cmd.Stdin = strings.NewReader(probeScript)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	p, err := parseProfile(out)
	if err != nil || !p.Commands["sh"] || !p.Commands["ls"] {
		t.Errorf("%v: %d commands", err, len(p.Commands))
	}
	if p.Commands["python3"] && (p.Python == "" || !p.Modules["json"] || !p.Modules["sys"] || p.Modules["no_such_module"]) {
		t.Errorf("python %q, %d modules", p.Python, len(p.Modules))
	}
}

// TestWhatIsNestedIsReadApart: a plain skill is read at once, and a parser in this process gets nothing deep.
func TestWhatIsNestedIsReadApart(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("(", maxNesting+1)
	for name, text := range map[string]string{
		"a.sh": deep, "a.js": deep, "a.py": "import subprocess\nsubprocess.run('" + deep + "', shell=True)\n", "SKILL.md": "```bash\n" + deep + "\n```\n",
	} {
		if _, err := read(skillOf(map[string]string{"SKILL.md": "x", name: text}), true); !errors.Is(err, errApart) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := read(skillOf(map[string]string{"SKILL.md": "x", "a.sh": strings.Repeat("(", maxNesting) + strings.Repeat(")", maxNesting)}), true); err != nil {
		t.Error(err)
	}
}

// TestNothingRunsOutOfStack: parsers go one call deeper for each bracket, and a stack that is full cannot
// be recovered from.
func TestNothingRunsOutOfStack(t *testing.T) {
	t.Parallel()
	opens := []string{"(", "$(", "!", "a=>", "${a:-", "f() {\n"}
	if testing.Short() {
		opens = opens[1:2]
	}
	for _, open := range opens {
		deep := strings.Repeat(open, maxParsed/len(open))
		dir := t.TempDir()
		for name, text := range map[string]string{"SKILL.md": "```bash\n" + deep + "\n```\n```js\n" + deep + "\n```\n", "a.js": deep, "a.sh": deep, "a.py": deep, "package.json": deep, "pyproject.toml": deep} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close() //nolint:errcheck // only read
		n, err := readHostile(t.Context(), root)
		if err != nil || len(n.List)+len(n.Doubts) == 0 {
			t.Errorf("%s: %+v, %v", open, n, err)
		}
	}
}
