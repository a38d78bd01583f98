/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Versions of the API of libmrc, as pumice serves it. */
#ifndef PUMICE_MRC_API_VER_H
#define PUMICE_MRC_API_VER_H

#define MRC_API_VER(major, minor, sub) (((major) << 24) | ((minor) << 16) | (sub))

#define MRC_API_CURRENT_VERSION MRC_API_VER(1, 0, 1)
#define MRC_API_LAST_SUPPORTED_VERSION MRC_API_VER(0, 0, 0)
#define MRC_API_VER_LATEST 0xFFFFFFFFu
#define MRC_VENDOR_API_CURRENT_VERSION MRC_API_VER(1, 0, 0)

#endif
