package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/app/environment"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
)

func newServe() *cobra.Command {
	var file string
	flags := config.Config{}
	cmd := &cobra.Command{
		Use: "serve", Short: "Start the server", Annotations: map[string]string{alone: "yes"},
		Long: "Starts the server. Everything can be set in one YAML file (--config), by SKERRY_… in the environment, and the usual things by flags; the later one wins.\n\n" +
			"With nothing configured it serves on 127.0.0.1:8080, keeps its state in the data folder, and uses Docker when its daemon answers, else runc.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(file, os.LookupEnv)
			if err != nil {
				return err
			}
			for name, field := range flagFields(&cfg) {
				if f := cmd.Flags().Lookup(name); f.Changed {
					*field = f.Value.String()
				}
			}
			spaceGC()
			return serve(cmd.Context(), cfg, newLog(cfg.LogLevel), func(addr string) {
				scheme := "http"
				if cfg.TLS.Cert != "" {
					scheme = "https"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "skerry %s serving on %s://%s (API description at /docs)\n", buildinfo.Version(), scheme, addr)
			})
		},
	}
	configFlags(cmd, &file, &flags)
	return cmd
}

// configFlags adds the flags by which a server is configured.
func configFlags(cmd *cobra.Command, file *string, flags *config.Config) {
	cmd.Flags().StringVar(file, "config", environment.Or("SKERRY_CONFIG", ""), "YAML file (SKERRY_CONFIG)")
	usage := map[string]string{
		"listen": "address of the API; any other than loopback needs keys", "data": "folder of everything that is kept",
		"driver": "auto, docker, oci, containerd or kubernetes", "peer-listen": "ip:port where servers on other machines reach this one by TLS", "redis": "redis://…; empty keeps the state in the data folder", "auth": "auto, keys or none",
	}
	for name, field := range flagFields(flags) {
		cmd.Flags().StringVar(field, name, "", usage[name])
	}
}

// spaceGC lets the heap grow to five times of what lives before it is collected, unless GOGC says
// otherwise. A server lives on some 20 MB: by Go's default, one busy with small calls spends a fifth of its
// time in collections.
func spaceGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// flagFields are the fields that have a flag.
func flagFields(c *config.Config) map[string]*string {
	return map[string]*string{"listen": &c.Listen, "data": &c.Data, "driver": &c.Driver, "peer-listen": &c.PeerListen, "redis": &c.Redis, "auth": &c.Auth}
}

func newLog(level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l}))
}

// serve runs a server until ctx ends. ready gets its address.
func serve(ctx context.Context, cfg config.Config, log *slog.Logger, ready func(addr string)) (err error) {
	a, err := app.New(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return a.Run(ctx, ready)
}
