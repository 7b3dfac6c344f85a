package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// made is a certificate of this process.
type made struct {
	cert  *tls.Certificate
	renew time.Time
}

// DialSandbox is for connections to one sandbox: no other can answer.
func (a *Authority) DialSandbox(id sandbox.ID) *tls.Config {
	return a.dial(SandboxName(id))
}

// DialServer is for connections to the other servers of the installation.
func (a *Authority) DialServer() *tls.Config { return a.dial(ServerName) }

func (a *Authority) dial(name string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: name, RootCAs: a.pool(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return a.own(&a.client, ClientName, x509.ExtKeyUsageClientAuth)
		},
		VerifyConnection: func(s tls.ConnectionState) error { return isOnly(s, name, x509.ExtKeyUsageServerAuth) },
	}
}

// ServeServers is for a listener that only the servers of the installation may reach.
func (a *Authority) ServeServers() *tls.Config {
	return serve(a.pool(), func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return a.own(&a.server, ServerName, x509.ExtKeyUsageServerAuth)
	})
}

func serve(clients *x509.CertPool, own func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, GetCertificate: own,
		// Each connection shows its certificate: a ticket would outlive it.
		SessionTicketsDisabled: true,
		VerifyConnection:       func(s tls.ConnectionState) error { return isOnly(s, ClientName, x509.ExtKeyUsageClientAuth) },
	}
}

// isOnly refuses a certificate that is good for anything but what it is wanted for. That it is signed was checked before.
func isOnly(s tls.ConnectionState, name string, usage x509.ExtKeyUsage) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the other side shows no certificate")
	}
	c := s.PeerCertificates[0]
	if !slices.Equal(c.DNSNames, []string{name}) {
		return fmt.Errorf("the certificate is for %.200q, not for %s", strings.Join(c.DNSNames, ", "), name)
	}
	if !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{usage}) || len(c.UnknownExtKeyUsage) > 0 {
		return fmt.Errorf("the certificate of %s is for another use", name)
	}
	return nil
}

func (a *Authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// own returns a certificate of this process, which is made anew in time.
func (a *Authority) own(slot **made, name string, usage x509.ExtKeyUsage) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if m := *slot; m != nil && now.Before(m.renew) {
		return m.cert, nil
	}
	raw, key, err := a.issue(name, usage, serverTime)
	if err != nil {
		return nil, err
	}
	*slot = &made{cert: &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, renew: now.Add(serverTime / 2)}
	return (*slot).cert, nil
}

// PodTLS is for the listener of a sandbox whose certificate lies in a folder, by the names of Secret.Files. The files are
// read again for each connection: connections are rare, and mounted secrets change. id is whose certificate it is.
func PodTLS(dir string) (c *tls.Config, id sandbox.ID, err error) {
	pair, clients, err := readPod(dir)
	if err != nil {
		return nil, "", err
	}
	if len(pair.Leaf.DNSNames) != 1 {
		return nil, "", fmt.Errorf("%s: the certificate has %d names, want that of one sandbox", dir, len(pair.Leaf.DNSNames))
	}
	name, ok := strings.CutSuffix(pair.Leaf.DNSNames[0], suffix)
	if id = sandbox.ID(name); !ok || !validID(id) {
		return nil, "", fmt.Errorf("%s: %.200q is not the name of a sandbox", dir, pair.Leaf.DNSNames[0])
	}
	first := serve(clients, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil })
	c = &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert}
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, clients, err := readPod(dir)
		if err != nil {
			return first, nil // half of a change: what was there goes on
		}
		return serve(clients, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }), nil
	}
	return c, id, nil
}

func readPod(dir string) (tls.Certificate, *x509.CertPool, error) {
	var text [3][]byte
	for i, name := range []string{CertFile, KeyFile, AuthorityFile} {
		var err error
		if text[i], err = readFile(filepath.Join(dir, name)); err != nil {
			return tls.Certificate{}, nil, err
		}
	}
	pair, err := tls.X509KeyPair(text[0], text[1])
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("%s and %s in %s: %w", CertFile, KeyFile, dir, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text[2]) {
		return tls.Certificate{}, nil, fmt.Errorf("%s: holds no certificate", filepath.Join(dir, AuthorityFile))
	}
	return pair, pool, nil
}
