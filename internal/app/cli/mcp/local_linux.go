package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
	mcphub "github.com/skerry-sandbox/skerry/internal/tools/hub"
)

// localTools are MCP servers that this process starts and ends.
type localTools struct {
	hub    *mcphub.Hub
	file   string
	thread sandbox.Thread
}

// localWait is how long MCP servers may take to start: none was started ahead.
const localWait = 30 * time.Second

// defaultExtensions is the file that a server with this environment would read.
func defaultExtensions() (string, error) {
	cfg, err := config.Load(os.Getenv("SKERRY_CONFIG"), os.LookupEnv)
	if err != nil {
		return "", exit.With(exit.Usage, "%w", err)
	}
	return extensionsOf(cfg), nil
}

func extensionsOf(cfg config.Config) string {
	if cfg.Extensions != "" {
		return cfg.Extensions
	}
	return filepath.Join(cfg.Data, "extensions_config.json")
}

// openLocal opens a hub on a file of MCP servers, or on that of a server's YAML file.
func openLocal(file string) (toolSource, error) {
	if ext := filepath.Ext(file); ext == ".yaml" || ext == ".yml" {
		cfg, err := config.Load(file, os.LookupEnv)
		if err != nil {
			return nil, exit.With(exit.Usage, "%w", err)
		}
		file = extensionsOf(cfg)
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(file); err != nil {
		return nil, exit.With(exit.Usage, "--config: %w", err)
	}
	// What goes wrong with a server is in its state, which the commands show.
	log := slog.New(slog.DiscardHandler)
	sealer, err := localSealer()
	if err != nil {
		return nil, err
	}
	hub, err := mcphub.Open(mcphub.Options{ConfigPath: file, StateDir: localHomes(), Sealer: sealer, Version: buildinfo.Version(), Log: log, LookupEnv: os.LookupEnv, FirstWait: localWait})
	if err != nil {
		return nil, err
	}
	if err := hub.ConfigError(); err != nil {
		return nil, exit.With(exit.Usage, "%w", errors.Join(err, hub.Close()))
	}
	return &localTools{hub: hub, file: file, thread: sandbox.Thread{Owner: app.LocalOwner, ID: "cli"}}, nil
}

// localHomes is the folder of the homes of stdio servers: what they keep there is found again by the
// next command. Root's own folders cannot be entered by the unprivileged uid that servers get from it.
func localHomes() string {
	if os.Geteuid() != 0 {
		if dir, err := os.UserCacheDir(); err == nil {
			return filepath.Join(dir, "skerry", "mcp")
		}
	}
	cfg, err := config.Load(os.Getenv("SKERRY_CONFIG"), os.LookupEnv)
	if err != nil {
		return "" // a folder for this command alone
	}
	return filepath.Join(cfg.Data, "mcp")
}

func (l *localTools) servers(ctx context.Context) ([]sandbox.ToolServer, error) {
	return l.hub.Catalog.Servers(ctx, l.thread)
}

func (l *localTools) toolsOf(ctx context.Context, server string) ([]sandbox.Tool, error) {
	set, err := l.hub.Catalog.Tools(ctx, l.thread)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(set.Tools, func(t sandbox.Tool) bool { return t.Server != server }), nil
}

func (l *localTools) search(ctx context.Context, q sandbox.ToolQuery) (sandbox.ToolSearch, error) {
	return l.hub.Catalog.Search(ctx, l.thread, q)
}

func (l *localTools) call(ctx context.Context, name string, input json.RawMessage) (sandbox.ToolResult, error) {
	tool, err := l.hub.Catalog.Resolve(ctx, l.thread, sandbox.ToolRef{Printed: name})
	if err != nil {
		return sandbox.ToolResult{}, err
	}
	return l.hub.Catalog.Call(ctx, l.thread, tool, input)
}

// caller is the user who started this process.
func (l *localTools) caller() sandbox.Caller {
	return sandbox.Caller{Owner: l.thread.Owner, Role: sandbox.RoleAdmin, Operator: true}
}

func (l *localTools) beginLogin(ctx context.Context, server, redirect string) (sandbox.ToolLogin, error) {
	return l.hub.Logins.BeginLogin(ctx, l.caller(), server, redirect)
}

func (l *localTools) finishLogin(ctx context.Context, server, redirected string) error {
	return l.hub.Logins.FinishLogin(ctx, l.caller(), server, redirected)
}

func (l *localTools) logout(ctx context.Context, server string) error {
	return l.hub.Logins.Logout(ctx, l.caller(), server)
}

func (l *localTools) config() string { return l.file }
func (l *localTools) close() error   { return l.hub.Close() }

// localSealer are the keys of a command that starts MCP servers itself: the server's for root, who has its
// logins, and others' own.
func localSealer() (*secrets.Keys, error) {
	cfg, err := config.Load(os.Getenv("SKERRY_CONFIG"), os.LookupEnv)
	if err != nil {
		return nil, err
	}
	path := cfg.SecretsKeyFile()
	if os.Geteuid() != 0 {
		dir, err := os.UserConfigDir()
		if err != nil {
			return secrets.TemporaryKeys()
		}
		path = filepath.Join(dir, "skerry", "secrets.key")
	}
	return secrets.OpenKeys(path, localHomes())
}
