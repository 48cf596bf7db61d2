"""GradMA's quadratic program: the vector closest to p that has no negative product with any row of M.

    p̃ = argmin ½ ‖p̃ − p‖²  s.t.  ⟨p̃, M[i]⟩ ≥ 0 for every i          (Luo et al. 2023, Eq. 2)
    z = argmin_{z ≥ 0} ½ zᵀMMᵀz + (Mp)ᵀz ,  p̃ = p + Mᵀz             (its dual, Eq. 4)

p is a gradient or a momentum of d coordinates, M has n rows of the same. Rows are scaled to unit length first. A row at
most 1e-30 as long as the longest one is dropped, and one whose distance to the span of those before it is below 1e-10
counts as dependent. Residuals are relative to ‖p‖. In float64 the error of p̃ is about 1e-13/a of ‖p‖, where a is the
sine of the smallest angle between a row and the span of others. Three rows that are not in float64 are solved from
their products, which is less exact (`three_rows`).
"""

from headway.methods.projection.many_rows import project_rows
from headway.methods.projection.rows import by_tensor, joined
from headway.methods.projection.three_rows import project_three, project_three_by_tensor

__all__ = ["by_tensor", "joined", "project_rows", "project_three", "project_three_by_tensor"]
