//go:build tools

// Package tools names what hack/cluster builds.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
