package spill

import (
	"os"
	"testing"
)

// A spill folder on a full disk, or a file-size limit, cuts the file and nothing else.
func TestWriteFails(t *testing.T) {
	f := New("/", "/dev", "full", 100)
	var err error
	if f.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("x"))
	f.Write([]byte("y"))
	if _, cut := f.Close(); !cut {
		t.Error("not cut")
	}
}

func TestUnopened(t *testing.T) {
	f := New(t.TempDir(), "/elsewhere", "stdout", 100)
	f.Open()
	f.Write([]byte("x"))
	if path, cut := f.Close(); path != "" || !cut {
		t.Errorf("%q, cut %v", path, cut)
	}
}
