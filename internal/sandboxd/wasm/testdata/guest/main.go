// Guest is a WASI program that tests run: each argument is one step, as KIND=WORD[,WORD], and each step prints a line.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

var steps = map[string]func(a, b string) (string, error){
	"args": func(string, string) (string, error) { return strings.Join(os.Args[1:], " "), nil },
	"env": func(string, string) (string, error) {
		all := os.Environ()
		slices.Sort(all)
		return strings.Join(all, " "), nil
	},
	"stdin": func(string, string) (string, error) {
		text, err := io.ReadAll(os.Stdin)
		return string(text), err
	},
	"stderr":   func(a, _ string) (string, error) { _, err := fmt.Fprint(os.Stderr, a); return "", err },
	"cwd":      func(string, string) (string, error) { return os.Getwd() },
	"read":     func(a, _ string) (string, error) { text, err := os.ReadFile(a); return string(text), err },
	"write":    func(a, b string) (string, error) { return "", os.WriteFile(a, []byte(b), 0o600) },
	"append":   appendTo,
	"patch":    patch,
	"ls":       list,
	"mkdir":    func(a, _ string) (string, error) { return "", os.Mkdir(a, 0o700) },
	"rm":       func(a, _ string) (string, error) { return "", os.Remove(a) },
	"rename":   func(a, b string) (string, error) { return "", os.Rename(a, b) },
	"link":     func(a, b string) (string, error) { return "", os.Link(a, b) },
	"symlink":  func(a, b string) (string, error) { return "", os.Symlink(a, b) },
	"readlink": func(a, _ string) (string, error) { return os.Readlink(a) },
	"stat": func(a, _ string) (string, error) {
		info, err := os.Stat(a)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(info.Size(), info.IsDir()), nil
	},
	"lstat": func(a, _ string) (string, error) {
		info, err := os.Lstat(a)
		if err != nil {
			return "", err
		}
		return info.Mode().Type().String(), nil
	},
	"touch": func(a, b string) (string, error) {
		at, err := time.Parse(time.RFC3339, b)
		if err == nil {
			err = os.Chtimes(a, at, at)
		}
		if err != nil {
			return "", err
		}
		info, err := os.Stat(a)
		if err != nil {
			return "", err
		}
		return info.ModTime().UTC().Format(time.RFC3339), nil
	},
	"truncate": func(a, b string) (string, error) {
		n, err := strconv.ParseInt(b, 10, 64)
		if err != nil {
			return "", err
		}
		return "", os.Truncate(a, n)
	},
	"sleep": func(a, _ string) (string, error) {
		d, err := time.ParseDuration(a)
		began := time.Now()
		time.Sleep(d)
		return fmt.Sprint(time.Since(began) >= d), err
	},
	"alloc": func(a, _ string) (string, error) {
		n, err := strconv.Atoi(a)
		if err != nil {
			return "", err
		}
		all := make([]byte, n)
		for i := 0; i < n; i += 4096 {
			all[i] = 1
		}
		return strconv.Itoa(len(all)), nil
	},
	"panic": func(a, _ string) (string, error) { panic(a) },
	"exit": func(a, _ string) (string, error) {
		n, err := strconv.Atoi(a)
		if err == nil {
			os.Exit(n)
		}
		return "", err
	},
}

func appendTo(a, b string) (string, error) {
	f, err := os.OpenFile(a, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.WriteString(b)
	return "", err
}

// patch writes at byte 1, and reads what is there by offset and after a seek.
func patch(a, b string) (string, error) {
	f, err := os.OpenFile(a, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(b), 1); err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	at := make([]byte, len(b))
	if _, err := f.ReadAt(at, 1); err != nil {
		return "", err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	all, err := io.ReadAll(f)
	return string(at) + " " + string(all), err
}

func list(a, _ string) (string, error) {
	entries, err := os.ReadDir(a)
	var names []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	return strings.Join(names, " "), err
}

func main() {
	for _, step := range os.Args[1:] {
		kind, rest, _ := strings.Cut(step, "=")
		a, b, _ := strings.Cut(rest, ",")
		do, ok := steps[kind]
		if !ok {
			fmt.Println("there is no step", kind)
			os.Exit(3)
		}
		text, err := do(a, b)
		if err != nil {
			fmt.Printf("%s: error %v\n", kind, err)
			continue
		}
		fmt.Printf("%s: %s\n", kind, text)
	}
}
