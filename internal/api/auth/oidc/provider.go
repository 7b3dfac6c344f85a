package oidc

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// newProvider checks an issuer, and puts in what was left out.
func newProvider(ctx context.Context, iss Issuer, o Options) (*provider, error) {
	iss.UserClaim = cmp.Or(iss.UserClaim, "sub")
	iss.Skew = cmp.Or(iss.Skew, DefaultSkew)
	iss.MaxLifetime = cmp.Or(iss.MaxLifetime, DefaultLifetime)
	if len(iss.Algorithms) == 0 {
		iss.Algorithms = DefaultAlgorithms()
	}
	if err := errors.Join(iss.checkPlace(), iss.checkTokens(), iss.checkRoles(), iss.checkLogin()); err != nil {
		return nil, err
	}
	if u, err := url.Parse(iss.URL); err == nil {
		iss.Name = cmp.Or(iss.Name, u.Host)
	}
	client, err := newClient(iss.CAFile)
	if err != nil {
		return nil, err
	}
	keys := &keySet{issuer: iss.URL, url: iss.KeysURL, client: client, now: o.Now, log: o.Log, ctx: ctx}
	if len(iss.Scopes) == 0 {
		iss.Scopes = []string{scopeOpenID}
	}
	return &provider{Issuer: iss, algorithms: signatures(iss.Algorithms), keys: keys, described: newDescription(keys, iss.Name)}, nil
}

func (iss Issuer) checkPlace() error {
	if err := checkURL(iss.URL); err != nil {
		return fmt.Errorf("issuer: %w", err)
	}
	if strings.Contains(iss.URL, "?") {
		return fmt.Errorf("issuer: %.200q: an issuer has no query", iss.URL)
	}
	if iss.KeysURL != "" {
		if err := checkKeysURL(iss.KeysURL); err != nil {
			return fmt.Errorf("keys_url: %w", err)
		}
	}
	return nil
}

func (iss Issuer) checkTokens() error {
	var errs []error
	if len(iss.Audiences) == 0 || slices.Contains(iss.Audiences, "") {
		errs = append(errs, errors.New("audiences: name the audience of tokens that are for this server"))
	}
	for _, a := range iss.Algorithms {
		if !slices.Contains(Algorithms(), a) {
			errs = append(errs, fmt.Errorf("algorithms: %q is not one of %s", a, strings.Join(Algorithms(), ", ")))
		}
	}
	if (iss.Tenant == "") == (iss.TenantClaim == "") {
		errs = append(errs, errors.New("tenant, tenant_claim: give exactly one of them"))
	}
	if iss.Tenant != "" && sandbox.CheckOwnerName("tenant", iss.Tenant) != nil {
		errs = append(errs, sandbox.CheckOwnerName("tenant", iss.Tenant))
	}
	if iss.Skew < 0 || iss.Skew > MaxSkew {
		errs = append(errs, fmt.Errorf("clock_skew: %s is not 0s to %s", iss.Skew, MaxSkew))
	}
	if iss.MaxLifetime < time.Minute {
		errs = append(errs, fmt.Errorf("max_lifetime: %s is less than 1m", iss.MaxLifetime))
	}
	return errors.Join(errs...)
}

func (iss Issuer) checkRoles() error {
	var errs []error
	known := func(key string, r sandbox.Role) {
		if !slices.Contains(sandbox.Roles(), r) {
			errs = append(errs, fmt.Errorf("%s: %q is not one of agent, developer, admin, auditor, pack", key, r))
		}
	}
	for _, r := range iss.Roles {
		known("roles", r)
	}
	if iss.DefaultRole != "" {
		known("default_role", iss.DefaultRole)
	}
	if iss.RolesClaim == "" && (len(iss.Roles) > 0 || iss.DefaultRole == "") {
		errs = append(errs, errors.New("roles_claim: say where a token names its roles, or give default_role alone"))
	}
	return errors.Join(errs...)
}

// checkURL wants https; http only of this machine.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%.200q is not the URL of a provider, such as https://login.example.com", text)
	}
	switch u.Scheme {
	case "https":
		return nil
	case "http":
		ip, err := netip.ParseAddr(u.Hostname())
		if u.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
			return nil
		}
	}
	return fmt.Errorf("%.200q: has to be https (http is for a provider on this machine)", text)
}

// checkKeysURL takes also the file of an issuer that publishes its keys nowhere.
func checkKeysURL(text string) error {
	if _, ok := keysFile(text); ok {
		return nil
	}
	return checkURL(text)
}

// keysFile returns the path of a URL such as file:///etc/skerry/librechat.json.
func keysFile(text string) (path string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "file" || u.Host != "" || !filepath.IsAbs(u.Path) {
		return "", false
	}
	return u.Path, true
}

// newClient makes what asks a provider. It follows no redirect: a provider's keys are where it says they are.
func newClient(caFile string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: %s holds no certificate", caFile)
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: fetchTime}).DialContext,
			TLSClientConfig: config, ForceAttemptHTTP2: true, MaxIdleConns: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       fetchTime,
	}, nil
}
