package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// DefaultServer is the address of a server that nothing names.
const DefaultServer = "http://127.0.0.1:8080"

// maxProfiles bounds the file of profiles, in bytes.
const maxProfiles = 1 << 20

// Profile is a server that the user logged in at.
type Profile struct {
	Server string `json:"server"`
	Key    string `json:"api_key,omitempty"`
}

// Profiles are those of a user of this machine.
type Profiles struct {
	Current string             `json:"current,omitempty"`
	All     map[string]Profile `json:"profiles"`
}

var profileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckProfileName reports a name that no profile can have.
func CheckProfileName(name string) error {
	if !profileName.MatchString(name) {
		return fmt.Errorf("%.70q is no name for a profile: use letters, digits, dots and dashes", name)
	}
	return nil
}

func profilesFile() (string, error) {
	if file := os.Getenv("SKERRY_PROFILES"); file != "" {
		return file, nil
	}
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "skerry", "profiles.json"), err
}

// LoadProfiles reads the profiles; without a file there are none.
func LoadProfiles() (Profiles, error) {
	p := Profiles{All: map[string]Profile{}}
	file, err := profilesFile()
	if err != nil {
		return p, nil //nolint:nilerr // a user without a home folder has no profiles
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, nil
	case err != nil:
		return p, err
	case info.Size() > maxProfiles:
		return p, fmt.Errorf("%s is larger than %d bytes", file, maxProfiles)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("%s cannot be read: mend or remove it", file)
	}
	if p.All == nil {
		p.All = map[string]Profile{}
	}
	return p, nil
}

// Save writes the profiles, for this user alone.
func (p Profiles) Save() error {
	file, err := profilesFile()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".profiles-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Resolve fills in what the command line does not say: from the environment, then from the profile. A key of a profile
// goes to its server alone.
func (c *Client) Resolve() error {
	all, err := LoadProfiles()
	if err != nil {
		return err
	}
	name, asked := c.Profile, c.Profile != ""
	if name == "" {
		name = os.Getenv("SKERRY_PROFILE")
		asked = name != ""
	}
	if name == "" {
		name = all.Current
	}
	profile, ok := all.All[name]
	if asked && !ok {
		return fmt.Errorf("there is no profile %.70q: `skerry use` lists them, `skerry login --name` makes one", name)
	}
	c.Named = true
	if c.Server == "" && c.Profile == "" {
		c.Server = os.Getenv("SKERRY_SERVER")
	}
	if c.Server == "" {
		c.Server = profile.Server
	}
	if c.Server == "" {
		c.Server, c.Named = DefaultServer, false
	}
	if c.Server, err = Address(c.Server); err != nil {
		return err
	}
	if c.Key == "" && c.Profile == "" { // not the flag's default, which --help prints
		c.Key = os.Getenv("SKERRY_API_KEY")
	}
	if c.Key == "" && profile.Server == c.Server {
		c.Key = profile.Key
	}
	return nil
}

// Address is the address of a server as a person writes it: localhost:8080 is http://localhost:8080.
func Address(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("the server's address is %.200q: it has to look like %s", text, DefaultServer)
	}
	return strings.TrimSuffix(text, "/"), nil
}
