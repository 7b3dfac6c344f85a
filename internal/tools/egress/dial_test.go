package egress

import (
	"net"
	"net/netip"
	"testing"
)

// TestPublicDialer: what is inside is refused, but for what is allowed.
func TestPublicDialer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, address := range []string{
		ln.Addr().String(), "[::1]:80", "10.0.0.1:80", "192.168.1.1:80", "172.16.0.1:80", "169.254.169.254:80", "100.64.0.1:80",
		"0.0.0.0:80", "[fe80::1]:80", "[fd00:ec2::254]:80", "[::ffff:127.0.0.1]:80", "224.0.0.1:80", "[64:ff9b::a9fe:a9fe]:80",
	} {
		if conn, err := PublicDialer(nil).DialContext(t.Context(), "tcp", address); !Refused(err) {
			t.Errorf("%s: %v, %v", address, conn, err)
		}
	}
	allowed := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	conn, err := PublicDialer(allowed).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := PublicDialer(allowed).DialContext(t.Context(), "tcp", "10.0.0.1:80"); !Refused(err) {
		t.Error(err)
	}
}
