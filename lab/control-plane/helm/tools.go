//go:build tools

// Package tools names helm, with which a test reads the chart, so that go.mod
// and go.sum pin it. It is never compiled: the lab runs `go build` on the
// import path below.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
