# SPDX-License-Identifier: Apache-2.0
# Copyright The Linkspan authors
"""The parts of perf/run."""
