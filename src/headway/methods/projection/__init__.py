"""GradMA's quadratic program: the vector closest to p that has no negative product with any row of M.

    p̃ = argmin ½ ‖p̃ − p‖²  s.t.  ⟨p̃, M[i]⟩ ≥ 0 for every i          (Luo et al. 2023, Eq. 2)
    z = argmin_{z ≥ 0} ½ zᵀMMᵀz + (Mp)ᵀz ,  p̃ = p + Mᵀz             (its dual, Eq. 4 there)

Rows are scaled to unit length first; a row no longer than 1e-30 of the longest is dropped, and a direction that adds
less than 1e-10 to the rows before it is no direction. Residuals are relative to ‖p‖. In float64 p̃ is within some
1e-13/a of ‖p‖ of the true point, where a is the sine of the smallest angle between a row and the span of others. Three
rows that are not in float64 are solved from their products, less exactly (`three.py`).
"""

from headway.methods.projection.many import project_rows
from headway.methods.projection.rows import by_tensor, joined
from headway.methods.projection.three import project_three, project_three_by_tensor

__all__ = ["by_tensor", "joined", "project_rows", "project_three", "project_three_by_tensor"]
