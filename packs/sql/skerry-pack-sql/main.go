// Command skerry-pack-sql lets the agents of a Skerry server read databases: packs/sql/README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	sqlpack "github.com/skerry-sandbox/skerry/packs/sql"
	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

const (
	version   = "1.0.0"
	checkTime = 15 * time.Second
)

// repeated is a flag that may come more than once.
type repeated []string

func (r *repeated) String() string { return strings.Join(*r, " ") }

// Set implements flag.Value.
func (r *repeated) Set(v string) error {
	*r = append(*r, v)
	return nil
}

// settings are what the command line says.
type settings struct {
	server, name, config, keyFile, sshKey, agentKey string
	databases, write                                repeated
	limits                                          sqlpack.Limits
}

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "skerry-pack-sql:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("skerry-pack-sql", flag.ContinueOnError)
	f.StringVar(&s.server, "server", os.Getenv("SKERRY_SERVER"), "URL of the Skerry server (SKERRY_SERVER)")
	f.StringVar(&s.name, "name", "sql", "name of the pack on the server")
	f.StringVar(&s.config, "config", "", "YAML file with databases and limits")
	f.Var(&s.databases, "database", "NAME=postgres://USER@HOST/DB, NAME=sqlite:FILE, NAME=env:VARIABLE or NAME=file:FILE; may be repeated")
	f.Var(&s.write, "write", "name of a database that execute may change; may be repeated")
	f.StringVar(&s.keyFile, "key-file", "", "file with a bearer key of the role pack; without it SKERRY_API_KEY")
	f.StringVar(&s.sshKey, "ssh-key", "", "file of a private SSH key")
	f.StringVar(&s.agentKey, "ssh-agent", "", "fingerprint of a key of the agent at SSH_AUTH_SOCK")
	f.IntVar(&s.limits.Rows, "rows", 0, "rows that query may return (1000)")
	f.IntVar(&s.limits.Bytes, "bytes", 0, "bytes that query may return (65536)")
	f.IntVar(&s.limits.ExportRows, "export-rows", 0, "rows of a file (1000000)")
	f.IntVar(&s.limits.ExportBytes, "export-bytes", 0, "bytes of a file (11534336)")
	f.DurationVar(&s.limits.Time, "time", 0, "time of a statement (30s)")
	f.IntVar(&s.limits.Connections, "connections", 0, "connections to each database (4)")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("there are arguments without a flag: %d", f.NArg()) // one may be a secret
	}
	if s.server == "" {
		return s, errors.New("name the Skerry server with --server or SKERRY_SERVER")
	}
	return s, nil
}

// configuration is the file, and what the flags say over it.
func (s settings) configuration() (sqlpack.Config, error) {
	c := sqlpack.Config{}
	if s.config != "" {
		var err error
		if c, err = sqlpack.ReadConfig(s.config); err != nil {
			return c, err
		}
	}
	c.Variable = os.Getenv
	if c.Databases == nil {
		c.Databases = map[string]sqlpack.Source{}
	}
	for _, d := range s.databases {
		name, address, ok := strings.Cut(d, "=")
		if !ok {
			return c, errors.New("a --database is NAME=URL")
		}
		c.Databases[name] = sqlpack.Source{URL: address}
	}
	for _, name := range s.write {
		d, ok := c.Databases[name]
		if !ok {
			return c, fmt.Errorf("--write names %.80q, which is no database", name)
		}
		d.Write = true
		c.Databases[name] = d
	}
	for from, to := range map[*int]*int{&s.limits.Rows: &c.Limits.Rows, &s.limits.Bytes: &c.Limits.Bytes, &s.limits.ExportRows: &c.Limits.ExportRows, &s.limits.ExportBytes: &c.Limits.ExportBytes, &s.limits.Connections: &c.Limits.Connections} {
		if *from != 0 {
			*to = *from
		}
	}
	if s.limits.Time != 0 {
		c.Limits.Time = s.limits.Time
	}
	return c, nil
}

func (s settings) credential() (packs.Credential, error) {
	switch {
	case s.sshKey != "":
		return packs.SSHKeyFile(s.sshKey), nil
	case s.agentKey != "":
		return packs.SSHAgent(os.Getenv("SSH_AUTH_SOCK"), s.agentKey), nil
	case s.keyFile != "":
		key, err := os.ReadFile(s.keyFile)
		return packs.BearerKey(strings.TrimSpace(string(key))), err
	case os.Getenv("SKERRY_API_KEY") != "":
		return packs.BearerKey(os.Getenv("SKERRY_API_KEY")), nil
	}
	return nil, nil //nolint:nilnil // a server without keys wants none
}

func run(args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	config, err := s.configuration()
	if err != nil {
		return err
	}
	credential, err := s.credential()
	if err != nil {
		return err
	}
	pack, err := sqlpack.New(s.name, version, config, slog.Default())
	if err != nil {
		return err
	}
	defer pack.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	checked, cancel := context.WithTimeout(ctx, checkTime)
	for name, why := range pack.Check(checked) { // it may be there later
		slog.Warn("the database cannot be used now", "database", name, "error", why)
	}
	cancel()
	return pack.Serve(ctx, packs.Server{URL: s.server, Credential: credential})
}
