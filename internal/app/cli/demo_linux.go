package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/app/cli/runs"
	"github.com/skerry-sandbox/skerry/internal/app/environment"
	"github.com/skerry-sandbox/skerry/internal/config"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// demo is one run of `skerry demo`: a client that uses the public API only, of a server of its own or of a running one.
type demo struct {
	api    client.Client
	out    io.Writer
	dir    string // of a server of its own: <dir>/data, <dir>/shared
	mcp    string // where npm installed the MCP servers
	thread string
	tools  string // name of the MCP server whose tools are called; "": there is none
	folder string // what they are called with
}

func newDemo(api *client.Client) *cobra.Command {
	var dir, mcp, driverName string
	cmd := &cobra.Command{
		Use: "demo", Short: "Show what a server does: a skill, a plugin's command, code that calls tools, the audit trail",
		Long: "Starts a server on embedded defaults and shows what it does. With --server it shows the same of a server that is there, in a thread of its own, which it deletes; " +
			"tools are called when that server knows those of `skerry demo tools` by the name \"" + demoServer + "\".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("server") {
				return (&demo{api: *api, out: cmd.OutOrStdout()}).runAt(cmd.Context())
			}
			cfg, err := config.Load("", os.LookupEnv)
			if err != nil {
				return err
			}
			cfg.Data, cfg.Listen, cfg.Auth, cfg.LogLevel = filepath.Join(dir, "data"), "127.0.0.1:0", "none", "warn"
			cfg.Driver = driverName
			cfg.Audit.SigningKeyFile = filepath.Join(dir, "audit-signing-key.pem") // beside the data folder: never in it
			d := &demo{out: cmd.OutOrStdout(), dir: dir, mcp: mcp, thread: "demo", tools: "filesystem", folder: filepath.Join(dir, "shared")}
			return d.run(cmd.Context(), cfg)
		},
	}
	cache := environment.Or("SKERRY_CACHE", "/var/cache/skerry")
	cmd.Flags().StringVar(&dir, "dir", filepath.Join(cache, "demo"), "folder for the demo's data")
	cmd.Flags().StringVar(&mcp, "mcp", environment.Or("SKERRY_MCP_DIR", filepath.Join(cache, "mcp")), "folder in which npm installed the MCP servers (SKERRY_MCP_DIR)")
	cmd.Flags().StringVar(&driverName, "driver", "auto", "auto, docker or oci")
	cmd.AddCommand(newDemoTools())
	return cmd
}

// runAt shows what a server does that is there.
func (d *demo) runAt(ctx context.Context) (err error) {
	began := time.Now()
	d.thread = fmt.Sprintf("demo-%d", began.UnixNano())
	d.say("The server at %s, thread %s", d.api.Server, d.thread)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), demoCleanTimeout)
		defer cancel()
		err = errors.Join(err, d.cleanUp(ctx))
	}()
	for _, step := range []func(context.Context) error{d.sandbox, d.findTools, d.skill, d.command, d.typescript, d.python, d.trail} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.say("Done in %.1f s", time.Since(began).Seconds())
	return nil
}

// demoCleanTimeout bounds the deletion of the demo's thread at a server that is there.
const demoCleanTimeout = time.Minute

// demoToolsTimeout is how long the demo's own MCP server may take to start: on a fresh machine Node comes from a cold disk.
const demoToolsTimeout = time.Minute

// mcpServer is what the demo reads of an MCP server.
type mcpServer struct {
	Name  string `json:"name"`
	State string `json:"state"`
	Error string `json:"error"`
	Count int    `json:"tool_count"`
}

func (d *demo) servers(ctx context.Context) ([]mcpServer, error) {
	var list struct {
		Servers []mcpServer `json:"servers"`
	}
	err := d.api.Call(ctx, http.MethodGet, client.ThreadPath(d.thread, "servers"), nil, &list)
	return list.Servers, err
}

// awaitTools waits for the tools of the MCP server that the demo has configured.
func (d *demo) awaitTools(ctx context.Context) error {
	end := time.Now().Add(demoToolsTimeout)
	for {
		list, err := d.servers(ctx)
		if err != nil {
			return err
		}
		state := "not in the list"
		for _, s := range list {
			if s.Name == d.tools && s.Count > 0 {
				return nil
			}
			if s.Name == d.tools {
				state = strings.TrimSpace(s.State + " " + s.Error)
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("the MCP server %q has no tools after %s: it is %s", d.tools, demoToolsTimeout, state)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// findTools looks whether the server knows the demo's tools.
func (d *demo) findTools(ctx context.Context) error {
	list, err := d.servers(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Name == demoServer && s.Count > 0 {
			d.tools, d.folder = demoServer, demoFolder
			return nil
		}
	}
	d.say("The server knows no MCP server %q with tools: code will call none (`skerry demo tools --help` says how to have one)", demoServer)
	return nil
}

func (d *demo) run(ctx context.Context, cfg config.Config) (err error) {
	began := time.Now()
	d.say("Preparing %s", d.dir)
	if err := d.prepare(); err != nil {
		return err
	}
	d.say("Starting a server on embedded defaults")
	ctx, stop := context.WithCancel(ctx)
	ready, ended := make(chan string, 1), make(chan error, 1)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	go func() { ended <- serve(ctx, cfg, log, func(addr string) { ready <- addr }) }()
	select {
	case addr := <-ready:
		d.api.Server = "http://" + addr
	case err := <-ended:
		stop()
		return err
	}
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	for _, step := range []func(context.Context) error{d.sandbox, d.awaitTools, d.skill, d.command, d.typescript, d.python, d.trail, d.cleanUp} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.say("Done in %.1f s", time.Since(began).Seconds())
	return nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, "\n== "+format+"\n", args...) }

// prepare writes what the demo works on: a folder that the filesystem MCP server shares, and the
// configuration that names the server.
func (d *demo) prepare() error {
	server := filepath.Join(d.mcp, "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")
	if _, err := os.Stat(server); err != nil {
		return fmt.Errorf("the filesystem MCP server is not in %s: `make demo` installs it there", d.mcp)
	}
	shared := filepath.Join(d.dir, "shared")
	// The MCP server runs as nobody, so it must be able to get here.
	if err := errors.Join(os.MkdirAll(shared, 0o755), os.MkdirAll(filepath.Join(d.dir, "data"), 0o755)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(shared, demoFile), []byte(demoText), 0o644); err != nil {
		return err
	}
	conf, err := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{
		"filesystem": map[string]any{"command": "node", "args": []string{server, shared}, "description": "Files of a shared folder"},
	}}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.dir, "data", "extensions_config.json"), conf, 0o600)
}

func (d *demo) sandbox(ctx context.Context) error {
	var res struct {
		Sandbox struct {
			ID, Driver, Runtime, State string
			Timings                    map[string]float64 `json:"timings_ms"`
		} `json:"sandbox"`
	}
	if err := d.api.Call(ctx, http.MethodPut, client.ThreadPath(d.thread, "sandbox"), map[string]any{}, &res); err != nil {
		return err
	}
	s := res.Sandbox
	d.say("Sandbox %s is %s: driver %s, runtime %s, created in %.0f ms, ready %.0f ms later", s.ID, s.State, s.Driver, s.Runtime, s.Timings["create"], s.Timings["ready"])
	who, err := d.exec(ctx, sdk.Command{Command: "id; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; cat /proc/net/route | wc -l; touch /etc/x"})
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "(%d ms)\n", who.DurationMillis)
	return nil
}

// exec runs a command and shows its output.
func (d *demo) exec(ctx context.Context, c sdk.Command) (*sdk.Result, error) {
	t := d.api.SDK().Thread(d.thread)
	return runs.Run{
		Thread: t, Stdout: d.out, Stderr: d.out,
		Begin: func(ctx context.Context) iter.Seq2[sdk.Event, error] { return t.StreamExec(ctx, c) },
	}.Follow(ctx)
}

const demoCSV = "island,area_km2,inhabitants,ferry\nUnst,120.68,634,yes\nYell,212.11,966,yes\nFetlar,40.78,61,yes\nFoula,12.65,38,yes\nFair Isle,7.68,68,yes\nOut Skerries,2.6,35,yes\nMousa,1.8,0,no\n"

func (d *demo) skill(ctx context.Context) error {
	d.say("Skill csv-profile on an uploaded file")
	err := d.api.Call(ctx, http.MethodPut, client.ThreadPath(d.thread, "files"), map[string]any{"path": "/mnt/user-data/uploads/islands.csv", "content": demoCSV}, nil)
	if err != nil {
		return err
	}
	res, err := d.api.SDK().Thread(d.thread).RunSkill(ctx, "csv-profile", sdk.Script{Script: "scripts/profile.py"})
	if err != nil {
		return err
	}
	fmt.Fprint(d.out, res.Stdout, res.Stderr)
	if err := client.Ending(res); err != nil {
		return fmt.Errorf("the skill failed: %w", err)
	}
	if len(res.Files) == 0 {
		return errors.New("the skill wrote no file")
	}
	for _, f := range res.Files {
		fmt.Fprintf(d.out, "%s %s  %d bytes  sha256 %s\n", f.Change, f.Path, f.Bytes, f.SHA256)
	}
	return nil
}

// The command that the demo runs, of a plugin that comes with the server.
const (
	demoPlugin  = "data-analysis"
	demoCommand = "explore"
	demoTask    = "/mnt/user-data/uploads/islands.csv Do larger islands have more inhabitants?"
)

// fenced finds the first block of shell code in a message for an agent.
var fenced = regexp.MustCompile("(?s)```sh\n(.*?)```")

// command invokes a plugin's command. It shows the message that an agent gets, and does what the message says first.
func (d *demo) command(ctx context.Context) error {
	thread := d.api.SDK().Thread(d.thread)
	msg, err := thread.Command(ctx, demoPlugin, demoCommand, demoTask)
	if errors.Is(err, sdk.NotFound) {
		d.say("The server has no plugin %q, or its command %q: setting plugins.path", demoPlugin, demoCommand)
		return nil
	}
	if err != nil {
		return err
	}
	d.say("Command /%s:%s %s\n   becomes this message for an agent:", demoPlugin, demoCommand, demoTask)
	for line := range strings.Lines(msg.Message) {
		fmt.Fprint(d.out, "   | ", line)
	}
	code := fenced.FindStringSubmatch(msg.Message)
	if code == nil {
		return errors.New("the message has no code to run")
	}
	d.say("The demo has no agent, and runs the message's code itself")
	res, err := d.exec(ctx, sdk.Command{Command: code[1], ReportFiles: true})
	if err != nil {
		return err
	}
	if err := client.Ending(res); err != nil {
		return fmt.Errorf("the command's code failed: %w", err)
	}
	if len(res.Files) == 0 {
		return errors.New("the command's code wrote no file")
	}
	return nil
}

func (d *demo) typescript(ctx context.Context) error {
	return d.code(ctx, "typescript", `import { readTextFile } from './servers/SERVER';
const { content } = await readTextFile({ path: 'SHARED/islands.txt' });
`, "const content = `"+demoText+"`;\n", `let total = 0, largest = { name: '', area: 0 };
for (const line of content.trim().split('\n')) {
  const at = line.lastIndexOf(' ');
  const island = { name: line.slice(0, at), area: Number(line.slice(at + 1)) };
  total += island.area;
  if (island.area > largest.area) largest = island;
}
console.log('islands together:', total.toFixed(2), 'km2');
console.log('the largest:', largest.name);
`)
}

func (d *demo) python(ctx context.Context) error {
	return d.code(ctx, "python", `from servers.SERVER import list_directory, read_text_file

names = [line.split()[-1] for line in list_directory(path="SHARED")["content"].splitlines()]
files = {name: read_text_file(path="SHARED/" + name)["content"] for name in names}
`, `files = {"`+demoFile+`": """`+demoText+`"""}
`, `for name, text in files.items():
    rows = text.splitlines()
    print(name, "has", len(rows), "rows")
    print("the shortest name:", min((r.rsplit(" ", 1)[0] for r in rows), key=len))
`)
}

// code runs code that gets its input by calling tools, or has it in its text when there are none.
func (d *demo) code(ctx context.Context, language, calling, having, rest string) error {
	text := having + rest
	if d.tools == "" {
		d.say("execute_code in %s", language)
	} else {
		d.say("execute_code in %s, calling tools of the MCP server %q", language, d.tools)
		text = strings.NewReplacer("SHARED", d.folder, "SERVER", d.tools).Replace(calling) + rest
	}
	res, err := d.api.SDK().Thread(d.thread).ExecuteCode(ctx, sdk.Code{Code: text, Language: language})
	if err != nil {
		return err
	}
	fmt.Fprint(d.out, res.Stdout, res.Stderr)
	for _, t := range res.ToolsCalled {
		fmt.Fprintf(d.out, "  called %s: %s, %d ms\n", t.Tool, t.Status, t.Millis)
	}
	fmt.Fprintf(d.out, "(%d ms)\n", res.DurationMillis)
	if err := client.Ending(res); err != nil {
		return fmt.Errorf("the %s code failed: %w", language, err)
	}
	if len(res.ToolsCalled) == 0 && d.tools != "" {
		return fmt.Errorf("the %s code called no tool", language)
	}
	return nil
}

func (d *demo) trail(ctx context.Context) error {
	d.say("The audit trail of all this, newest first")
	var list struct {
		Items []map[string]any `json:"items"`
	}
	if err := d.api.Call(ctx, http.MethodGet, "/api/audit?thread="+d.thread+"&limit=40", nil, &list); err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return errors.New("the audit log is empty")
	}
	// Behind the end of an earlier thread of this name stands what an earlier demo did.
	if i := slices.IndexFunc(list.Items, func(item map[string]any) bool { return item["action"] == "thread_delete" }); i > 0 {
		list.Items = list.Items[:i]
	}
	for _, item := range list.Items { // the last digits of a UUIDv7 tell records apart
		for _, name := range []string{"id", "parent"} {
			if s, ok := item[name].(string); ok && len(s) > 8 {
				item[name] = s[len(s)-8:]
			}
		}
	}
	return output.Table(d.out, list.Items, []string{"time", "phase", "action", "subject", "outcome", "ms", "id", "parent"})
}

func (d *demo) cleanUp(ctx context.Context) error {
	return d.api.Call(ctx, http.MethodDelete, "/api/threads/"+d.thread, nil, nil)
}
