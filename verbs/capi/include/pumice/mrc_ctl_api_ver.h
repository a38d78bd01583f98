/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Version of the controller's API of libmrc, as pumice serves it. */
#ifndef PUMICE_MRC_CTL_API_VER_H
#define PUMICE_MRC_CTL_API_VER_H

#include "mrc_api_ver.h"

#define MRC_CTL_API_CURRENT_VERSION MRC_API_VER(1, 0, 1)

#endif
