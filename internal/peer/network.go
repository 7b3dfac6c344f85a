package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/replica"
)

// Network is how replicas on several machines reach each other: TLS 1.3 with certificates of both sides, which the
// installation's authority signed for replicas. Who has another certificate of that authority, such as a
// sandbox's sidecar, is refused before a byte of its request is read.
type Network struct {
	// Listen is the ip:port where this replica is reached, and which it announces. Port 0: any that is free.
	Listen string
	// Certificate gives what this replica shows, with Name of its id. It is asked for each connection.
	Certificate func() (*tls.Certificate, error)
	// Authority holds who signs the certificates of all replicas.
	Authority *x509.CertPool
}

// nameOf is the scheme and type of the names in certificates of replicas.
const nameOf = "skerry:replica:"

// Name is what the certificate of a replica names, as its only URI.
func Name(id string) *url.URL { return &url.URL{Scheme: "skerry", Opaque: "replica:" + id} }

// listen opens the listener for the other replicas.
func (n *Network) listen(me string) (net.Listener, error) {
	conf := n.config(func(id string) error {
		if id == me {
			return errors.New("it is this replica's own")
		}
		return nil
	})
	conf.ClientAuth = tls.RequireAndVerifyClientCert
	conf.ClientCAs = n.Authority
	conf.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return n.Certificate() }
	ln, err := net.Listen("tcp", n.Listen)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(ln, conf), nil
}

// dial connects to a replica at the address that it announced, which may be another one's by now.
func (n *Network) dial(ctx context.Context, me string, at replica.Info) (net.Conn, error) {
	conf := n.config(func(id string) error {
		if id != at.ID {
			return fmt.Errorf("it is of the replica %.40q", id)
		}
		return nil
	})
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return n.Certificate() }
	// The name is checked below, with the chain: it is none of a host.
	conf.InsecureSkipVerify = true
	verify := conf.VerifyConnection
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		between := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			between.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
			Roots: n.Authority, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
		if err != nil {
			return err
		}
		return verify(s)
	}
	d := tls.Dialer{Config: conf}
	return d.DialContext(ctx, "tcp", at.Peer)
}

// config is what both ends have in common: the certificate that is shown names a replica that is welcome.
func (n *Network) config(welcome func(id string) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			id, err := replicaOf(s.PeerCertificates)
			if err == nil {
				err = welcome(id)
			}
			if err != nil {
				return fmt.Errorf("the certificate of %s: %w", s.PeerCertificates[0].Subject, err)
			}
			return nil
		},
	}
}

// replicaOf is the replica that a chain's first certificate is for.
func replicaOf(chain []*x509.Certificate) (string, error) {
	if len(chain) == 0 || len(chain[0].URIs) != 1 {
		return "", errors.New("it names no replica")
	}
	id, ok := strings.CutPrefix(chain[0].URIs[0].String(), nameOf)
	if !ok || id == "" {
		return "", errors.New("it names no replica")
	}
	return id, nil
}

// CheckFormer makes sure that the replica which had this one's slot before has ended. When it answers over the
// network, the folder's locks do not reach from one machine to the other, and no server may trust them.
func (p *Peers) CheckFormer(ctx context.Context) error {
	at := p.Former()
	if p.network == nil || at.Peer == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := p.network.dial(ctx, p.ID(), at)
	if err != nil {
		return nil //nolint:nilerr // it is not there
	}
	return errors.Join(fmt.Errorf("the replica %s, at %s, lives, and its slot was free: locks in the data folder do not work between machines; "+
		"use a volume on which they do, such as NFS 4 or CephFS", at.ID, at.Peer), c.Close())
}
