package login

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// The grants by which a token is got.
const (
	GrantCode      = "authorization_code" // a person agrees in a browser
	GrantClient    = "client_credentials" // the client is known to the authorization server
	GrantAssertion = "jwt_bearer"         // a platform vouches for the workload (RFC 7523)
)

// Limits of what a configuration or a server says.
const (
	maxScopes = 100
	maxScope  = 256 // bytes of one
)

// Settings is "oauth" in a server's configuration: an object, or false for a server that must never be
// logged in at. The zero value takes what the server's own metadata says.
type Settings struct {
	Off bool `json:"off,omitempty"`

	Grant            string `json:"grant,omitempty"` // "" is GrantCode, or GrantClient with a key
	ClientID         string `json:"client_id,omitempty"`
	ClientSecret     string `json:"client_secret,omitempty"`
	PrivateKey       string `json:"private_key,omitempty"` // PEM, PKCS #8: private_key_jwt instead of a secret
	KeyID            string `json:"key_id,omitempty"`
	Algorithm        string `json:"algorithm,omitempty"` // of PrivateKey; "" follows from the key
	Assertion        string `json:"assertion,omitempty"` // the JWT of GrantAssertion
	MetadataDocument string `json:"client_metadata_url,omitempty"`
	RedirectURI      string `json:"redirect_uri,omitempty"` // where a registered client is sent back to; loopback
	Issuer           string `json:"issuer,omitempty"`       // the only authorization server that is trusted
	MetadataURL      string `json:"metadata_url,omitempty"` // of the authorization server, when it is not found
	TokenURL         string `json:"token_url,omitempty"`    // for grants of machines: nothing is discovered
	Scopes           Scopes `json:"scopes,omitempty"`       // to ask for, in place of what the server names
	AllowPrivate     bool   `json:"allow_private,omitempty"`
}

// Secrets names the members of Settings that are never shown.
var Secrets = []string{"client_secret", "private_key", "assertion"}

// Scopes is a list, or a text with blanks between them.
type Scopes []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *Scopes) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*s = strings.Fields(text)
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(s))
}

// UnmarshalJSON implements json.Unmarshaler. Members that other clients write are understood: clientId,
// callbackPort, authServerMetadataUrl.
func (s *Settings) UnmarshalJSON(raw []byte) error {
	switch string(bytes.TrimSpace(raw)) {
	case "false":
		*s = Settings{Off: true}
		return nil
	case "true":
		*s = Settings{}
		return nil
	}
	type plain Settings
	in := struct {
		*plain
		ClientID2    string `json:"clientId"`
		CallbackPort uint16 `json:"callbackPort"`
		MetadataURL2 string `json:"authServerMetadataUrl"`
	}{plain: (*plain)(s)}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	if s.ClientID == "" {
		s.ClientID = in.ClientID2
	}
	if s.MetadataURL == "" {
		s.MetadataURL = in.MetadataURL2
	}
	if s.RedirectURI == "" && in.CallbackPort != 0 {
		s.RedirectURI = fmt.Sprintf("http://localhost:%d/callback", in.CallbackPort)
	}
	return nil
}

// Check completes the settings, and returns the first member that is wrong ("" when none is) and why.
func (s *Settings) Check() (field, problem string) {
	if s.Grant == "" {
		s.Grant = GrantCode
		if s.PrivateKey != "" {
			s.Grant = GrantClient
		}
	}
	switch {
	case s.Off:
		return "", ""
	case s.Grant != GrantCode && s.Grant != GrantClient && s.Grant != GrantAssertion:
		return "grant", "is not authorization_code, client_credentials or jwt_bearer"
	case s.Grant != GrantCode && s.ClientID == "":
		return "client_id", "is needed for this grant"
	case s.Grant == GrantClient && s.ClientSecret == "" && s.PrivateKey == "":
		return "client_secret", "or private_key is needed for this grant"
	case s.ClientSecret != "" && s.PrivateKey != "":
		return "private_key", "and client_secret exclude each other"
	case (s.ClientSecret != "" || s.PrivateKey != "") && s.ClientID == "":
		return "client_id", "is missing"
	case (s.Grant == GrantAssertion) != (s.Assertion != ""):
		return "assertion", "goes with the grant jwt_bearer"
	case len(s.Scopes) > maxScopes || slices.ContainsFunc(s.Scopes, func(sc string) bool { return !isScope(sc) }):
		return "scopes", "is not a list of at most 100 scopes"
	case s.TokenURL != "" && s.Grant == GrantCode:
		return "token_url", "is for grants without a person"
	case s.RedirectURI != "" && !isReference(s.RedirectURI) && !IsLoopbackRedirect(s.RedirectURI):
		return "redirect_uri", "is not an http URL of a loopback address"
	}
	for _, f := range []struct{ name, value string }{{"issuer", s.Issuer}, {"metadata_url", s.MetadataURL}, {"token_url", s.TokenURL}, {"client_metadata_url", s.MetadataDocument}} {
		if f.value != "" && !isReference(f.value) && !isHTTP(f.value) {
			return f.name, "is not an http or https URL"
		}
	}
	return "", ""
}

// isReference reports whether a text is completed later, from ${NAME}.
func isReference(s string) bool { return strings.Contains(s, "${") }

// Texts returns every text in which ${NAME} stands for a variable, by the name of its member.
func (s *Settings) Texts() map[string]*string {
	return map[string]*string{
		"client_id": &s.ClientID, "client_secret": &s.ClientSecret, "private_key": &s.PrivateKey, "key_id": &s.KeyID, "assertion": &s.Assertion,
		"client_metadata_url": &s.MetadataDocument, "redirect_uri": &s.RedirectURI, "issuer": &s.Issuer, "metadata_url": &s.MetadataURL, "token_url": &s.TokenURL,
	}
}

// IsLoopbackRedirect reports whether a browser that is sent there stays on its machine.
func IsLoopbackRedirect(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "http" && isLoopback(u.Hostname()) && u.User == nil && u.Fragment == ""
}

func isHTTP(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}

// isScope reports whether s is one scope (RFC 6749 §3.3).
func isScope(s string) bool {
	if s == "" || len(s) > maxScope {
		return false
	}
	for _, r := range []byte(s) {
		if r <= ' ' || r >= 0x7f || r == '"' || r == '\\' {
			return false
		}
	}
	return true
}

// scopesOf returns the scopes of a text that a stranger wrote.
func scopesOf(text string) []string { return onlyScopes(strings.Fields(text)) }

func onlyScopes(list []string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !isScope(s) })
	return list[:min(len(list), maxScopes)]
}

// union returns the scopes of both lists, each once, in order.
func union(a, b []string) []string {
	var out []string
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
