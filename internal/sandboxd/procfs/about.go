package procfs

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// CommandLine returns the arguments of a process with blanks between them, at most so many bytes; its name in brackets when it
// has none, "" when it is gone. A process writes both itself.
func CommandLine(pid, most int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	if f, err := os.Open(dir + "/cmdline"); err == nil {
		defer f.Close()
		line, err := io.ReadAll(io.LimitReader(f, int64(most)))
		if err == nil && len(line) > 0 {
			return strings.TrimRight(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})), " ")
		}
	}
	name, err := os.ReadFile(dir + "/comm")
	if err != nil {
		return ""
	}
	return "[" + strings.TrimSpace(string(name[:min(len(name), most)])) + "]"
}

// Resident is the memory that a process has in RAM, in bytes; what cannot be read is 0.
func Resident(pid int) int64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	return kibibytes(status, "VmRSS")
}

// startField is the number of the field that says when a process began, in ticks since the machine did.
const startField = 22

// Started is when a process began; zero when that cannot be read.
func Started(pid int) time.Time {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return time.Time{}
	}
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	text, err := os.ReadFile("/proc/uptime")
	if err != nil || len(fields) <= startField-stateField {
		return time.Time{}
	}
	word, _, _ := strings.Cut(string(text), " ")
	up, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return time.Time{}
	}
	ticks, err := strconv.ParseInt(string(fields[startField-stateField]), 10, 64)
	if err != nil {
		return time.Time{}
	}
	age := time.Duration(up*float64(time.Second)) - time.Duration(ticks)*tick
	return time.Now().Add(-max(age, 0))
}
