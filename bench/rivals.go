package main

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// container is a plain one, to `docker exec` into.
type container string

func startContainer(image string, options []string, command ...string) (container, error) {
	args := append([]string{"run", "-d", "--rm", "--network", "none"}, options...)
	out, err := exec.Command("docker", append(append(args, image), command...)...).Output()
	if err != nil {
		return "", fmt.Errorf("docker run %s: %w", image, withStderr(err))
	}
	return container(strings.TrimSpace(string(out))), nil
}

func (c container) remove() error { return exec.Command("docker", "rm", "-f", string(c)).Run() }

// exec returns what runs a command in the container; options stand before it.
func (c container) exec(options []string, argv ...string) func() error {
	args := append(append([]string{"exec"}, options...), string(c))
	return hostProgram("", "docker", append(args, argv...)...)
}

// hostProgram returns what runs a program of the host and takes its output.
func hostProgram(dir, name string, args ...string) func() error {
	return func() error {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		_, err := cmd.Output()
		return withStderr(err)
	}
}

// withStderr adds the standard error of a program to the error of its exit.
func withStderr(err error) error {
	var ended *exec.ExitError
	if errors.As(err, &ended) && len(ended.Stderr) > 0 {
		return fmt.Errorf("%w: %.300s", err, ended.Stderr)
	}
	return err
}

//go:embed llm_sandbox.py
var llmSandboxText string

// llmSandbox opens a session of llm-sandbox, from PyPI, with our image, and returns what prints in it.
// The opening does not count. An error says why it is not there.
func (b *bench) llmSandbox(image string) (do, stop func() error, err error) {
	python := filepath.Join(b.cache, "rivals/bin/python")
	if _, err := os.Stat(python); err != nil {
		return nil, nil, errors.New("it is not installed (scripts/install.sh rivals)")
	}
	cmd := exec.Command(python, "-c", llmSandboxText, image)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		_ = in.Close()
		return nil, nil, fmt.Errorf("its session did not open: %w: %.300s", cmd.Wait(), said.String())
	}
	do = func() error {
		if _, err := io.WriteString(in, "\n"); err != nil {
			return err
		}
		if !lines.Scan() || lines.Text() != "1" {
			return fmt.Errorf("llm-sandbox printed %q: %.300s", lines.Text(), said.String())
		}
		return nil
	}
	return do, func() error { return errors.Join(in.Close(), cmd.Wait()) }, nil
}
