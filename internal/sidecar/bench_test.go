package sidecar

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// BenchmarkPullNothing is what an exec costs that changed nothing.
func BenchmarkPullNothing(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n, "-files"), func(b *testing.B) {
			bed := newBed(b)
			for i := range n {
				bed.put(fmt.Sprintf("server/files/workspace/d%d/f%d", i%50, i), fmt.Sprint(i))
			}
			c := bed.filled()
			for range 2 { // the first is a full one; by the second, no stamp is too new
				if _, err := c.Pull(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if changed, err := c.Pull(b.Context()); err != nil || changed {
					b.Fatal(changed, err)
				}
			}
		})
	}
}

// BenchmarkPullOne is what an exec costs that changed one file of a thousand.
func BenchmarkPullOne(b *testing.B) {
	bed := newBed(b)
	for i := range 1000 {
		bed.put(fmt.Sprintf("server/files/workspace/d%d/f%d", i%50, i), fmt.Sprint(i))
	}
	c := bed.filled()
	i := 0
	for b.Loop() {
		i++
		bed.put("pod/files/workspace/d1/f1", fmt.Sprint("text ", i))
		if changed, err := c.Pull(b.Context()); err != nil || !changed {
			b.Fatal(changed, err)
		}
	}
}

// BenchmarkPullMany is a first pull of a thousand new files, with all that makes it durable.
func BenchmarkPullMany(b *testing.B) {
	bed := newBed(b)
	c := bed.filled()
	i := 0
	for b.Loop() {
		b.StopTimer()
		i++
		for k := range 1000 {
			bed.put(fmt.Sprintf("pod/files/workspace/d%d/f%d", k%50, k), fmt.Sprint("text ", i))
		}
		b.StartTimer()
		if changed, err := c.Pull(b.Context()); err != nil || !changed {
			b.Fatal(changed, err)
		}
	}
}

// BenchmarkPushOneSkillFile is one changed file among a thousand of skills.
func BenchmarkPushOneSkillFile(b *testing.B) {
	bed := newBed(b)
	for i := range 1000 {
		bed.put(fmt.Sprintf("server/skills/public/s%d/f%d", i%50, i), fmt.Sprint(i))
	}
	c := bed.filled()
	i := 0
	for b.Loop() {
		i++
		bed.put("server/skills/public/s1/f1", fmt.Sprint("text ", i))
		bed.skills(b, c)
	}
}

// BenchmarkPushNothing is a push of the same skills without a change.
func BenchmarkPushNothing(b *testing.B) {
	bed := newBed(b)
	for i := range 1000 {
		bed.put(fmt.Sprintf("server/skills/public/s%d/f%d", i%50, i), fmt.Sprint(i))
	}
	c := bed.filled()
	for b.Loop() {
		bed.skills(b, c)
	}
}

func (b *bed) skills(t testing.TB, c *Conn) {
	if err := c.Push(context.Background(), sandbox.SkillsDir); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkSocket is one byte there and back, and 100 MB there, through the tunnel and without it.
func BenchmarkSocket(b *testing.B) {
	for _, way := range []string{"direct", "tunnel"} {
		bed := newBed(b)
		bed.dial(nil)
		bed.server("bridge.sock", echo)
		bed.server("stdio.sock", func(c *net.UnixConn) {
			_, _ = io.Copy(io.Discard, c)
			_, _ = c.Write([]byte("x"))
		})
		dial := func(b *testing.B, name string) *net.UnixConn {
			dir := "pod/run"
			if way == "direct" {
				dir = "server/sock"
			}
			b.Chdir(bed.path(dir))
			c, err := net.Dial("unix", name)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = c.Close() })
			return c.(*net.UnixConn)
		}
		b.Run("round-trip-"+way, func(b *testing.B) {
			c := dial(b, "bridge.sock")
			buf := make([]byte, 1)
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("connect-"+way, func(b *testing.B) {
			buf := make([]byte, 1)
			for b.Loop() {
				c := dial(b, "bridge.sock")
				_, _ = c.Write(buf)
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
				_ = c.Close()
			}
		})
		b.Run("100MB-"+way, func(b *testing.B) {
			data := make([]byte, 1<<20)
			b.SetBytes(100 << 20)
			for b.Loop() {
				c := dial(b, "stdio.sock")
				for range 100 {
					if _, err := c.Write(data); err != nil {
						b.Fatal(err)
					}
				}
				_ = c.CloseWrite()
				if _, err := io.ReadAll(c); err != nil {
					b.Fatal(err)
				}
				_ = c.Close()
			}
		})
	}
}

// BenchmarkCopy100MB is one file either way, with its digest and, at the server, on disk.
func BenchmarkCopy100MB(b *testing.B) {
	bed := newBed(b)
	c := bed.filled()
	data := make([]byte, 100<<20)
	i := 0
	for _, way := range []string{"push", "pull"} {
		b.Run(way, func(b *testing.B) {
			b.SetBytes(100 << 20)
			for b.Loop() {
				b.StopTimer()
				i++
				data[0], data[1] = byte(i), byte(i>>8)
				side := map[string]string{"push": "server", "pull": "pod"}[way]
				if err := os.WriteFile(bed.path(side+"/files/workspace/big"), data, 0o644); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				var err error
				if way == "push" {
					err = c.Push(context.Background(), sandbox.WorkspaceDir+"/big")
				} else {
					_, err = c.Pull(context.Background())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
