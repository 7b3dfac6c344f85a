package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// networkProof finds out whether the cluster enforces network policies.
type networkProof struct{ *Driver }

const (
	// proofTime is how long it counts that a sandbox could not get out.
	proofTime = time.Hour
	// failedTime is how long a failed probe counts: then the next new pod is asked again.
	failedTime = 30 * time.Second
	// settleTime is what a network plugin has to close a new pod, and settlePause is between two looks.
	settleTime  = 10 * time.Second
	settlePause = 500 * time.Millisecond
)

// proof is what is known of whether the cluster enforces policies. The API server takes them where it does not, and a look at them shows
// nothing; so a sandbox that was made, and has run no code yet, has its sidecar try to leave the pod.
type proof struct {
	settle time.Duration // settleTime

	mu     sync.Mutex
	closed time.Time // when it was shown last that nothing gets out
	open   time.Time // and that something does
	why    string    // of open
}

// failed says why no sandbox is made, or "".
func (p *proof) failed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open.IsZero() || time.Since(p.open) > failedTime {
		return ""
	}
	return p.why
}

// PoliciesEnforced says whether a sandbox of this driver showed that the cluster enforces policies, or why not; neither when none was made yet.
func (d *Driver) PoliciesEnforced() (shown bool, problem string) {
	return !d.proof.due(), d.proof.failed()
}

func (p *proof) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed.IsZero() || time.Since(p.closed) > proofTime
}

func (p *proof) note(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why == "" {
		p.closed, p.open = time.Now(), time.Time{}
		return
	}
	p.closed, p.open, p.why = time.Time{}, time.Now(), why
}

// proveClosed shows, when it is time, that code in a sandbox cannot reach the API server of the cluster.
// Every pod without a policy can. A plugin may need a moment with a new pod; while that lasts nothing of the
// sandbox runs.
func (d networkProof) proveClosed(ctx context.Context, id sandbox.ID) error {
	if d.o.Unpoliced || !d.o.ProveClosed || !d.proof.due() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.proof.settle+askTimeout)
	defer cancel()
	target, err := d.apiAddress(ctx)
	if err != nil {
		return err
	}
	if target.Addr().IsLoopback() { // a pod has its own
		d.o.Log.Warn("it is not shown that the cluster enforces NetworkPolicies: the API server is on this machine's loopback address")
		d.proof.note("")
		return nil
	}
	c, err := d.attached(id)
	if err != nil {
		return err
	}
	began := time.Now()
	for first := true; ; first = false {
		reached, err := c.Reach(ctx, target.String())
		if err != nil {
			return err
		}
		switch {
		case !reached && first:
			d.proof.note("")
			return nil
		case !reached: // the next one is asked, too, and waits as long
			d.o.Log.Warn("the cluster's network plugin closes a new pod late", "sandbox", id, "after", time.Since(began).Round(100*time.Millisecond))
			return nil
		case time.Since(began) >= d.proof.settle:
			return d.foundOpen(id, target.String())
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox was not made in time")
		}
	}
}

// foundOpen tells the log and the caller.
func (d networkProof) foundOpen(id sandbox.ID, target string) error {
	why := fmt.Sprintf("the cluster does not enforce NetworkPolicies: a sandbox in namespace %s reached %s, which they forbid", d.o.Namespace, target)
	d.proof.note(why)
	d.policy.mu.Lock()
	d.policy.at = time.Time{}
	d.policy.mu.Unlock()
	d.o.Log.Error(why+". No sandbox is made; install a network plugin that enforces them (Calico, Cilium, …)", "sandbox", id)
	return sandbox.Errorf(sandbox.NotSupported, "%s", why)
}

// apiAddress returns an IP address and port of the API server: a sandbox can look up no name.
func (d networkProof) apiAddress(ctx context.Context) (netip.AddrPort, error) {
	u, err := url.Parse(d.o.Config.Host)
	if err != nil || u.Hostname() == "" {
		return netip.AddrPort{}, sandbox.Errorf(sandbox.Internal, "the API server has no address that a sandbox could try")
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "443"), 10, 16)
	if err != nil {
		return netip.AddrPort{}, sandbox.Wrap(sandbox.Internal, err, "the API server has no port that a sandbox could try")
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil || len(addresses) == 0 {
		return netip.AddrPort{}, sandbox.Wrap(sandbox.Unavailable, err, "the name of the API server is not known just now")
	}
	return netip.AddrPortFrom(addresses[0].Unmap(), uint16(port)), nil
}
