package sqlpack

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/packs/sql/database"
	"github.com/skerry-sandbox/skerry/packs/sql/postgres"
	"github.com/skerry-sandbox/skerry/packs/sql/sqlite"
)

// Config is which databases agents get, and how much of them.
type Config struct {
	Databases map[string]Source `yaml:"databases"`
	Limits    Limits            `yaml:"limits"`
	// Variable returns a variable of the environment, for URLs that name one; nil: there are none.
	Variable func(name string) string `yaml:"-"`
}

// Source is one database.
type Source struct {
	// URL is postgres://…, sqlite:FILE, env:VARIABLE or file:FILE, which have one of the first two.
	URL string `yaml:"url"`
	// PasswordFile has the password of a URL without one.
	PasswordFile string `yaml:"password_file"`
	// Write gives the database the tool execute.
	Write bool `yaml:"write"`
}

// Limits are those of each call; a missing one takes its default.
type Limits struct {
	Rows        int           `yaml:"rows"`         // of a query; 1,000
	Bytes       int           `yaml:"bytes"`        // of its rows in JSON; 64 KiB
	ExportRows  int           `yaml:"export_rows"`  // 1,000,000
	ExportBytes int           `yaml:"export_bytes"` // of a file; 11 MiB, which is what a result of the server holds
	Time        time.Duration `yaml:"time"`         // of a statement; 30 s
	Connections int           `yaml:"connections"`  // to a database; 4
}

// The bounds of limits.
const (
	maxExport      = 11 << 20
	maxRows        = 10_000
	maxExportRows  = 100_000_000
	maxBytes       = 1 << 20
	maxTime        = 50 * time.Minute
	maxConnections = 100
	maxDatabases   = 100
	maxSecret      = 64 << 10
)

func (l *Limits) fill() error {
	for _, n := range []struct {
		name     string
		value    *int
		def, max int
	}{
		{"rows", &l.Rows, 1000, maxRows}, {"bytes", &l.Bytes, 64 << 10, maxBytes}, {"export_rows", &l.ExportRows, 1_000_000, maxExportRows},
		{"export_bytes", &l.ExportBytes, maxExport, maxExport}, {"connections", &l.Connections, 4, maxConnections},
	} {
		if *n.value == 0 {
			*n.value = n.def
		}
		if *n.value < 1 || *n.value > n.max {
			return fmt.Errorf("limits.%s is %d: it is 1 to %d", n.name, *n.value, n.max)
		}
	}
	if l.Time == 0 {
		l.Time = 30 * time.Second
	}
	if l.Time < time.Second || l.Time > maxTime {
		return fmt.Errorf("limits.time is %s: it is 1s to %s", l.Time, maxTime)
	}
	return nil
}

// ReadConfig reads a file of YAML.
func ReadConfig(file string) (Config, error) {
	var c Config
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	d := yaml.NewDecoder(strings.NewReader(string(text)))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

var databaseName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

// open opens the databases.
func (c *Config) open(log *slog.Logger) (map[string]database.Database, error) {
	if err := c.Limits.fill(); err != nil {
		return nil, err
	}
	if n := len(c.Databases); n < 1 || n > maxDatabases {
		return nil, fmt.Errorf("there are %d databases: name 1 to %d, such as sales=env:SALES_URL", n, maxDatabases)
	}
	list := map[string]database.Database{}
	for name, s := range c.Databases {
		if !databaseName.MatchString(name) {
			return nil, fmt.Errorf("%.80q is no name of a database: it has 1 to 63 of the characters a-z 0-9 _ -, and begins with a letter", name)
		}
		d, err := s.open(c, log.With("database", name))
		if err != nil {
			return nil, fmt.Errorf("the database %s: %w", name, err)
		}
		list[name] = d
	}
	return list, nil
}

func (s Source) open(c *Config, log *slog.Logger) (database.Database, error) {
	l := c.Limits
	address, err := s.address(c.Variable)
	if err != nil {
		return nil, err
	}
	if file, ok := strings.CutPrefix(address, "sqlite:"); ok {
		if file, err = filepath.Abs(file); err != nil {
			return nil, err
		}
		return sqlite.Open(sqlite.Options{File: file, Write: s.Write, Connections: l.Connections, Time: l.Time})
	}
	if !strings.HasPrefix(address, "postgres://") && !strings.HasPrefix(address, "postgresql://") {
		return nil, errors.New("the URL is none of postgres://…, sqlite:FILE, env:VARIABLE, file:FILE")
	}
	password := ""
	if s.PasswordFile != "" {
		if password, err = secret(s.PasswordFile); err != nil {
			return nil, err
		}
	}
	return postgres.Open(postgres.Options{URL: address, Password: password, Write: s.Write, Connections: l.Connections, Time: l.Time, Log: log})
}

// address is the URL itself. Where it stands in the configuration it has no password: others read command lines, and files.
func (s Source) address(variable func(string) string) (string, error) {
	if name, ok := strings.CutPrefix(s.URL, "env:"); ok {
		if variable != nil && variable(name) != "" {
			return variable(name), nil
		}
		return "", fmt.Errorf("the variable %s is not set", name)
	}
	if file, ok := strings.CutPrefix(s.URL, "file:"); ok {
		return secret(file)
	}
	if strings.HasPrefix(s.URL, "postgres") {
		u, err := url.Parse(s.URL)
		if err != nil {
			return "", errors.New("the URL cannot be read: it is postgres://USER@HOST:PORT/DATABASE") // the error has the password, if there is one
		}
		if _, has := u.User.Password(); has || u.Query().Has("password") || u.Query().Has("sslpassword") {
			return "", errors.New("the URL has a password, which others on this machine see: put the URL into a variable (env:NAME) or a file (file:PATH), or the password into a file of its own")
		}
	}
	return s.URL, nil
}

// secret reads the first line of a small file.
func secret(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimRight(line, "\r"); line == "" {
		return "", fmt.Errorf("the file %s has no first line", file)
	}
	return line, nil
}
