// Package editdistance says how much two names differ, so that who writes one wrongly is told the right one.
package editdistance

import (
	"slices"
	"strings"
)

// Of is the number of letters to add, take away or exchange until a is b, byte by byte. Names whose lengths
// differ by more than 100 are 1000 apart.
func Of(a, b string) int {
	if len(a)-len(b) > 100 || len(b)-len(a) > 100 {
		return 1000
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j]+1, row[j+1]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

// mostCompared bounds what Nearest compares of a name that came from outside, in bytes.
const mostCompared = 200

// Nearest returns up to three of names that look most like want. Upper and lower case are the same. The part
// of a name behind its first separator counts, too, one letter further away.
func Nearest(want string, names []string, separator string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var list []candidate
	low := strings.ToLower(want)
	low = low[:min(len(low), mostCompared)]
	for _, n := range names {
		l := strings.ToLower(n)
		d := Of(low, l)
		if _, short, ok := strings.Cut(l, separator); ok {
			d = min(d, Of(low, short)+1)
		}
		if d <= max(2, len(low)/3) {
			list = append(list, candidate{n, d})
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return a.distance - b.distance })
	var near []string
	for _, c := range list[:min(len(list), 3)] {
		near = append(near, c.name)
	}
	return near
}
