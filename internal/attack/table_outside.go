package attack

// outside lists the attacks against the server.
func outside() []Attack {
	return nil
}
