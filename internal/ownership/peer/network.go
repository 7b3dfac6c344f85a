package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/skerry-sandbox/skerry/internal/ownership/replica"
)

// Network is how replicas on several machines reach each other: TLS with certificates of both sides, which the
// installation's authority signed for servers. Who has another certificate of that authority, such as a sandbox's
// sidecar, is refused before a byte of its request is read.
type Network struct {
	// Listen is the ip:port where this replica is reached, and which it announces. Port 0: any that is free.
	Listen string
	// Serve is for the listener: it lets in servers only. Dial is for connections, and believes no other.
	Serve, Dial *tls.Config
}

// replicaHeader names the replica that a request is for: an address may be another one's by now.
const replicaHeader = "Skerry-Replica"

// listen opens the listener for the other replicas.
func (n *Network) listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", n.Listen)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(ln, n.Serve), nil
}

// dial connects to a replica at the address that it announced.
func (n *Network) dial(ctx context.Context, at replica.Info) (net.Conn, error) {
	d := tls.Dialer{Config: n.Dial}
	return d.DialContext(ctx, "tcp", at.Peer)
}

// addressed says in each request which replica it is for. Where another one answers, there is no connection to it.
type addressed struct{ *http.Transport }

func (a addressed) RoundTrip(r *http.Request) (*http.Response, error) {
	to := r.WithContext(r.Context())
	to.Header = r.Header.Clone()
	to.Header.Set(replicaHeader, r.URL.Host)
	res, err := a.Transport.RoundTrip(to)
	if err == nil && res.StatusCode == http.StatusMisdirectedRequest {
		return nil, errors.Join(noConnection(errors.New("another replica is at its address")), res.Body.Close())
	}
	return res, err
}

// noConnection is how a failure looks before which nothing was sent.
func noConnection(err error) error { return &net.OpError{Op: "dial", Net: "replica", Err: err} }

// only answers requests for this replica with h, and refuses those for another one.
func (p *Peers) only(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(replicaHeader) != p.ID() {
			http.Error(w, "this is another replica", http.StatusMisdirectedRequest)
			return
		}
		r.Header.Del(replicaHeader)
		h.ServeHTTP(w, r)
	})
}

// CheckFormer makes sure that the replica which had this one's slot before has ended. When it answers over the
// network, the folder's locks do not reach from one machine to the other, and no server may trust them.
func (p *Peers) CheckFormer(ctx context.Context) error {
	at := p.Former()
	if p.network == nil || at.Peer == "" {
		return nil
	}
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.network.dial(ctx, at) }}
	err := ask(ctx, addressed{t}, at.ID, "alive", url.Values{})
	if err == nil || errors.Is(err, errNo) {
		return fmt.Errorf("the replica %s, at %s, lives, and its slot was free: locks in the data folder do not work between machines; "+
			"use a volume on which they do, such as NFS 4 or CephFS", at.ID, at.Peer)
	}
	return nil // none is there, or another one
}
