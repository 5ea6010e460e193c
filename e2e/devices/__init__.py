# SPDX-License-Identifier: Apache-2.0
"""The suite of the end-to-end tests that has real devices under it."""
