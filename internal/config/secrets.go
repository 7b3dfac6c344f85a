package config

import (
	"path/filepath"
	"regexp"
)

// Secrets says where secrets come from and how they are kept.
type Secrets struct {
	// KeyFile holds the age identities for which they are encrypted; it lies outside of Data. Empty: beside the key
	// that signs the audit log for the default Data, and <data>.keys/secrets.key for others: a rotation must not take away
	// what another data folder needs.
	KeyFile string `yaml:"key_file"`
	// Dir is a folder whose files are secrets, as Kubernetes mounts them.
	Dir string `yaml:"dir"`
	// Env are the variables of the server's environment that are secrets.
	Env []string `yaml:"env"`
	// Exec are the names of files and variables that an exec may have in its environment.
	Exec []string `yaml:"exec"`
	// StrictEnv lets ${NAME} in the configuration of MCP servers stand for the variables of Env alone, and PATH and HOME.
	StrictEnv bool `yaml:"strict_env"`
}

// keyFile is KeyFile, or its default.
func (s *Secrets) keyFile(data string) string {
	switch {
	case s.KeyFile != "":
		return s.KeyFile
	case filepath.Clean(data) == Default().Data:
		return "/etc/skerry/secrets-key.txt"
	}
	return filepath.Clean(data) + ".keys/secrets.key"
}

// SecretsKeyFile returns the file of the keys of a configuration that was not checked yet.
func (c *Config) SecretsKeyFile() string { return c.Secrets.keyFile(c.Data) }

var secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)

// check completes the paths, too.
func (s *Secrets) check(data string, bad func(key, format string, args ...any)) {
	for key, names := range map[string][]string{"secrets.env": s.Env, "secrets.exec": s.Exec} {
		for _, n := range names {
			if !secretName.MatchString(n) {
				bad(key, "%.140q is not the name of a secret: use A-Z a-z 0-9 _ . -, beginning with a letter or _", n)
			}
		}
	}
	s.KeyFile = s.keyFile(data)
	for key, path := range map[string]*string{"secrets.key_file": &s.KeyFile, "secrets.dir": &s.Dir} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			bad(key, "%s", err)
			continue
		}
		*path = abs
	}
}
