# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests: the plugin inside a whole OpenStack on one machine."""
