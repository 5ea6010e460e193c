# SPDX-License-Identifier: Apache-2.0

import logging

# Until there is a log file, Nova would tell the terminal what it does.
logging.disable(logging.INFO)
