//go:build tools

// Package tools names krew, with which a test installs the plugin, so that go.mod and
// go.sum pin it. It is never compiled: the lab runs `go build` on the import
// path below.
package tools

import (
	_ "sigs.k8s.io/krew/cmd/krew"
)
