package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

// networkAttempts look for a way out, or to a process that is not in this sandbox.
var networkAttempts = map[string]attempt{
	"metadata":           dialsTo("tcp", "169.254.169.254:80"),
	"tcp-out":            dialsTo("tcp", "192.0.2.1:80"),
	"ipv6-out":           dialsTo("tcp", "[2001:db8::1]:80"),
	"dns":                askName,
	"host-loopback":      dials("tcp", "api"),
	"host-abstract":      dials("unix", "hosts-abstract"),
	"engine-socket":      engineSocket,
	"neighbour-port":     dials("tcp", "port"),
	"neighbour-abstract": dials("unix", "abstract"),
	"packet-socket":      makes(unix.AF_PACKET, unix.SOCK_RAW, 0),
	"raw-icmp":           makes(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
	"raw-ipv6":           makes(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6),
	"vsock":              makes(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
	"alg-socket":         makes(unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
	"xdp-socket":         makes(unix.AF_XDP, unix.SOCK_RAW, 0),
	"netlink-address":    netlinkAddress,
	"link-down":          linkDown,
}

const dialTimeout = 3 * time.Second

// dialsTo connects to an address outside. The server there says who it is.
func dialsTo(network, address string) attempt {
	return func(wire.Facts) (string, error) {
		conn, err := net.DialTimeout(network, address, dialTimeout)
		if err != nil {
			return "", orTimeout(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
			return "", broken("deadline", err)
		}
		line, _ := bufio.NewReader(conn).ReadString('\n') // reached is reached, also when nothing is said
		return fmt.Sprintf("connected to %s, which says %q", address, line), nil
	}
}

// dials connects to where a fact says that a process listens.
func dials(network, fact string) attempt {
	return func(f wire.Facts) (string, error) {
		if f[fact] == "" {
			return "", fmt.Errorf("no address was passed: %s", fact)
		}
		return dialsTo(network, f[fact])(f)
	}
}

func orTimeout(err error) error {
	var e net.Error
	if errors.As(err, &e) && e.Timeout() {
		return refusal("no answer")
	}
	return err
}

// engineSocket looks for the sockets of container engines.
func engineSocket(wire.Facts) (string, error) {
	var worst error = unix.ENOENT
	for _, path := range []string{"/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/docker/containerd/containerd.sock", "/run/podman/podman.sock"} {
		conn, err := net.DialTimeout("unix", path, dialTimeout)
		if err == nil {
			conn.Close()
			return "connected to " + path, nil
		}
		if !errors.Is(err, unix.ENOENT) {
			worst = err
		}
	}
	return "", worst
}

// question is a DNS query for the address of example.com.
var question = []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01")

// askName asks resolvers for a name: those of the sandbox, and one on the net.
func askName(wire.Facts) (string, error) {
	servers := []string{"198.51.100.53"}
	data, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", broken("resolv.conf", err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "nameserver" {
			servers = append(servers, f[1])
		}
	}
	var worst error
	for _, server := range servers {
		found, err := ask(net.JoinHostPort(server, "53"))
		if err == nil {
			return found, nil
		}
		worst = orTimeout(err)
	}
	return "", worst
}

func ask(server string) (string, error) {
	conn, err := net.DialTimeout("udp", server, dialTimeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return "", err
	}
	if _, err := conn.Write(question); err != nil {
		return "", err
	}
	n, err := conn.Read(make([]byte, 512))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s answered with %d bytes", server, n), nil
}

// makes makes a socket.
func makes(family, kind, protocol int) attempt {
	return func(wire.Facts) (string, error) {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("made a socket of family %d", family), unix.Close(fd)
	}
}

// netlinkAddress adds an address to the loopback interface.
func netlinkAddress(wire.Facts) (string, error) {
	return "lo has the address 192.0.2.77", addAddress(net.IPv4(192, 0, 2, 77))
}

// linkDown switches the loopback interface off.
func linkDown(wire.Facts) (string, error) { return "lo is down", setLoopback(false) }

// addAddress adds an address of one host to the loopback interface.
func addAddress(ip net.IP) error {
	family, bytes := byte(unix.AF_INET), ip.To4()
	if bytes == nil {
		family, bytes = unix.AF_INET6, ip.To16()
	}
	const loopback = 1
	body := []byte{family, byte(len(bytes) * 8), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	body = binary.NativeEndian.AppendUint32(body, loopback)
	for _, kind := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		body = binary.NativeEndian.AppendUint16(body, uint16(unix.SizeofRtAttr+len(bytes))) //nolint:gosec // at most 20
		body = binary.NativeEndian.AppendUint16(body, kind)
		body = append(body, bytes...)
	}
	return netlink(unix.RTM_NEWADDR, body)
}

// netlink sends one request and reads whether it was obeyed.
func netlink(kind uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	message := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body))) //nolint:gosec // short
	message = binary.NativeEndian.AppendUint16(message, kind)
	message = binary.NativeEndian.AppendUint16(message, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	message = append(message, make([]byte, 8)...) // number and sender
	if err := unix.Sendto(fd, append(message, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("an answer of %d bytes", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 { //nolint:gosec // a negative number is an error's
		return unix.Errno(-code)
	}
	return nil
}

// setLoopback switches the loopback interface on or off.
func setLoopback(up bool) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if up {
		request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	} else {
		request.SetUint16(0)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(request))); errno != 0 {
		return errno
	}
	return nil
}
