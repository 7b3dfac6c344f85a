// Package editdistance says how much two names differ, so that who writes one wrongly is told the right one.
package editdistance

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
